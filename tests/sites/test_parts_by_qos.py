"""Nodes that jobs share, where the lane is only a QOS: a second QOS is for parts of nodes.

Needs MariaDB and slurmdbd, which `make test-sites` installs.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from promises.bench import Bench, has
from sites.admin import (
    ordinary,
    render,
    sacctmgr,
    set_site,
    skip_without_database,
    state_of,
    submit,
    wait_for_state,
)
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.spec import Preemption

pytestmark = [pytest.mark.slurm, pytest.mark.database]
SLEEP = "exec sleep 600"


@pytest.fixture(scope="module")
def site(new_site: Callable[..., Sandbox]) -> Sandbox:
    """Two nodes of 4 GPUs. All jobs are in the partition `main`, where QOS normal preempts."""
    skip_without_database()
    spec = {"is_accounting": True, "preemption": Preemption.QOS}
    box = new_site(nodes=2, cpus=8, gpus=4, kill_wait_s=3, **spec)
    bench = Bench(box)
    set_site(bench, partitions='["main"]')
    assert render(bench).stderr == ""
    return box


def doctor(bench: Bench) -> str:
    return bench.malleable("doctor", "part-nodes", "part-memory", "preempt-qos").stdout


def qos_of(bench: Bench, job: int) -> set[str]:
    """The QOS of the running fragments, by Slurm."""
    argv = ["squeue", "-h", "--array", "--states=R", f"--jobs={job}", "-o", "%q"]
    return set(bench.box.run(argv).stdout.split())


def test_doctor_and_ticks_accept_the_site_and_find_a_wrong_order(bench: Bench) -> None:
    assert "All is well: 3 checks fine" in doctor(bench)
    assert "parts of nodes are not used" not in bench.malleable("reconcile").stdout
    sacctmgr(bench.box, "modify", "qos", "scavenge", "set", "Priority=0")
    said = doctor(bench)
    assert "QOS parts: Priority=0 is not below the Priority=0 of QOS scavenge" in said
    fix = "sacctmgr -i modify qos scavenge set Priority=1"
    assert fix in said
    bench.box.run(fix.split())


def test_slurm_takes_the_qos_of_lower_priority_before_the_oldest_job(bench: Bench) -> None:
    box = bench.box

    def start(*words: str) -> str:
        job = submit(box, "-p", "main", "--requeue", *words, script=SLEEP, user="root")
        wait_for_state(box, job.stdout.strip(), ["RUNNING"])
        return job.stdout.strip()

    start("--nodelist=n2", "--gres=gpu:2")
    whole = start("-q", "scavenge", "--exclusive")
    part = start("-q", "parts", "--gres=gpu:2", "--mem=100")
    start("--gres=gpu:2")
    assert [state_of(box, job) for job in (whole, part)] == ["RUNNING", "PENDING"]
    start("--gres=gpu:4")
    assert state_of(box, whole) == "PENDING"


def test_a_job_of_gpus_takes_free_gpus_and_gives_way(bench: Bench) -> None:
    text = bench.box.settings.read_text()
    bench.box.settings.write_text(text.replace("\n[plan]\n", "\n[plan]\nheadroom_gpus = 0\n"))
    others = [
        ordinary(bench.box, f"--nodelist={node}", f"--gres=gpu:{gpus}", seconds=600)
        for node, gpus in (("n1", 2), ("n2", 3))
    ]
    for other in others:
        wait_for_state(bench.box, other, ["RUNNING"])
    job = bench.submit(SLEEP, "1-4,unit=gpu")
    bench.tick_until(job, lambda j: j.size == 3)
    assert qos_of(bench, job) == {"parts"}
    bench.tick()  # holds running fragments, so that a preempted fragment waits for a tick
    urgent = ordinary(bench.box, "--gres=gpu:2", seconds=600)
    wait_for_state(bench.box, urgent, ["RUNNING"])
    bench.tick_until(job, lambda j: j.size == 1 and has(1)(j))
    bench.box.run(["scancel", urgent, *others])
    bench.tick_until(job, lambda j: j.size == 4 and qos_of(bench, job) == {"scavenge"})


def test_a_core_waits_in_the_same_partition_with_the_qos_of_its_user(bench: Bench) -> None:
    options = ["--gres=gpu:1", "--cpus-per-gpu=1", "--mem-per-gpu=100", "--time=5"]
    job = bench.submit(SLEEP, "1-4,unit=gpu,core=1,engine=pool", options=options)
    bench.tick_until(job, lambda j: j.size == 4)
    core, *others = bench.job(job).active
    assert (core.is_core, core.size) == (True, 1)
    assert sum(f.size for f in others) == 3
    assert qos_of(bench, job) == {"normal", "scavenge"}  # an idle node is there
