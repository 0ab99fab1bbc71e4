"""A fragment's knowledge of its workers on a part of a node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from slurm_hooks.elastic.agent.options import OptionError, identity
from slurm_hooks.elastic.agent.workers_here import workers_here
from slurm_hooks.elastic.engines.torchft.world import make_world
from slurm_hooks.protocol.request import Request, counted

GIVEN = {"SLURM_GPUS_ON_NODE": "3", "SLURM_CPUS_ON_NODE": "12", "SLURM_CPUS_PER_TASK": "12"}
SLOT = {"SLURM_SPANK_MALLEABLE_SLOT": "cpu:4+mem:8192"}


@pytest.mark.parametrize(
    ("request_text", "unit"),
    [
        ("4-64,unit=gpu,engine=torchrun", Request(4, 64, 1, "gpu")),
        ("4-64,engine=torchrun,unit=2gpu", Request(4, 64, 2, "gpu")),
        ("0-512,unit=task,engine=pool", Request(0, 512, 1, "task")),
        ("4-64,unit=4task,launch=srun", Request(4, 64, 4, "task")),
        ("2-16", None),
        ("2-16,unit=2", None),
        ("2-16,unit=gpus", None),
        ("2-16,unit=0gpu", None),
        ("unit=gpu", None),
        ("", None),
    ],
)
def test_the_unit_of_a_request_s_sizes(request_text: str, unit: Request | None) -> None:
    assert counted(request_text) == unit


@pytest.mark.parametrize(
    ("request_text", "more", "workers"),
    [
        ("2-16", {}, 1),  # whole nodes, whatever is on them
        ("2-16,unit=2", {}, 1),
        ("4-64,unit=gpu", {}, 3),
        ("4-64,unit=2gpu", {"SLURM_GPUS_ON_NODE": "4"}, 4),  # GPUs, not pairs
        ("4-64,unit=gpu", {"SLURM_GPUS_ON_NODE": ""}, 1),
        ("1-2,unit=gpu", {}, 2),  # Slurm gave more than the job may have
        ("4-64,unit=task", SLOT, 3),
        ("4-64,unit=task", {"SLURM_SPANK_MALLEABLE_SLOT": "mem:8192+cpu:6"}, 2),
        ("4-64,unit=task", {}, 12),
        ("4-64,unit=task", {**SLOT, "SLURM_CPUS_ON_NODE": "16"}, 3),  # in whole cores
        ("4-64,unit=task", {**SLOT, "SLURM_CPUS_PER_TASK": ""}, 3),
        ("4-64,unit=task", {**SLOT, "SLURM_CPUS_PER_TASK": "junk", "SLURM_CPUS_ON_NODE": "1"}, 1),
    ],
)
def test_workers_are_counted_by_slurm_s_grant(
    request_text: str, more: dict[str, str], workers: int
) -> None:
    env = {**GIVEN, **more, "SLURM_SPANK_MALLEABLE": request_text}
    assert workers_here(env) == workers
    assert identity(env, "n1", 0).workers == workers


def test_torchft_counts_nodes() -> None:
    facts: Any = SimpleNamespace(env={"SLURM_SPANK_MALLEABLE": "1-8,unit=gpu,engine=torchft"})
    with pytest.raises(OptionError, match="without unit=: --malleable=1-4,engine=torchft"):
        make_world(facts)
