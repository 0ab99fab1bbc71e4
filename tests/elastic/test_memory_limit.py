"""A process that the kernel ends for want of memory is named as that."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_hooks.elastic.agent.memory_limit import MemoryLimit

NEW = "0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0\n"
OLD = "9:cpu,cpuacct:/slurm\n4:memory:/slurm/uid_1/job_7/step_batch\n0::/\n"


@pytest.mark.parametrize(
    ("cgroup", "file"),
    [
        (NEW, "system.slice/slurmstepd.scope/job_7/step_batch/user/task_0/memory.events"),
        (OLD, "memory/slurm/uid_1/job_7/step_batch/memory.oom_control"),
    ],
)
def test_it_counts_what_the_kernel_has_ended(tmp_path: Path, cgroup: str, file: str) -> None:
    own, counter = tmp_path / "cgroup", tmp_path / file
    own.write_text(cgroup)
    counter.parent.mkdir(parents=True)
    counter.write_text("oom 0\noom_kill 0\n")
    limit = MemoryLimit(own, tmp_path)
    assert not limit.was_reached()
    counter.write_text("oom 3\noom_kill 1\noom_group_kill 0\n")
    assert limit.was_reached()
    assert not limit.was_reached()


def test_a_node_without_cgroups_says_nothing(tmp_path: Path) -> None:
    assert not MemoryLimit(tmp_path / "none", tmp_path).was_reached()
