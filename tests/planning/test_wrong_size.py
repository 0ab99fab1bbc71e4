"""A fragment that counts slots and runs with other resources than requested."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from build import NOW, make_fragment, make_node, make_request
from slurm_hooks.model import Fragment, FragmentState, Reason, Resources, Slot
from slurm_hooks.planning.trouble import wrong_size
from slurm_hooks.report.why import reason_text

NODE = make_node("n1", cpus=32, memory_mib=256_000, gres=(("gpu", 8), ("gpu:a100", 8)))
GPU = Slot("gpu")  # 4 CPUs and 32000 MiB
A100 = Slot("gpu:a100", 3, 10_000)
CORE = Slot("", 2, 1000)


def has(cpus: int, memory_mib: int, gpus: int = 0, name: str = "gpu") -> Resources:
    names = sorted({"gpu", name}) if gpus else ()
    return Resources(cpus, memory_mib, tuple((each, gpus) for each in names))


def runs(slot: Optional[Slot], asks: Resources, slots: int = 4, *nodes: str) -> Fragment:
    request = replace(make_request(), slot=slot)
    state = FragmentState.RUNNING
    return make_fragment(0, state, nodes or ("n1",), request=request, slots=slots, asks=asks)


@pytest.mark.parametrize(
    ("slot", "asks"),
    [
        (GPU, has(16, 128_000, 4)),
        (GPU, has(32, 256_000, 4)),  # whole cores, or the memory of the node
        (A100, has(12, 40_000, 4, "gpu:a100")),
        (CORE, has(8, 4000)),
        (CORE, has(9, 4000)),
    ],
)
def test_a_fragment_that_has_the_requested_size(slot: Slot, asks: Resources) -> None:
    assert wrong_size(runs(slot, asks), NODE, NOW) is None


@pytest.mark.parametrize(
    ("slot", "asks", "text"),
    [
        # TresPerNode=gpu:4 (22.05): the old number, and a text that names no GPUs that are given
        (GPU, has(16, 128_000), "0 GPUs on n1 instead of 4 GPUs"),
        # a range: all but the first element keep their GPUs
        (GPU, has(16, 128_000, 1), "1 GPU on n1 instead of 4 GPUs"),
        # Gres alone: the processors of the run before
        (GPU, has(4, 128_000, 4), "4 CPUs on n1 instead of 16 CPUs"),
        # NumCPUs without CpusPerTask (24.11)
        (CORE, has(1, 4000), "1 CPU on n1 instead of 8 CPUs"),
        # an operator's update
        (GPU, has(20, 160_000, 5), "5 GPUs on n1 instead of 4 GPUs"),
        (
            A100,
            has(12, 1000, 2, "gpu:a100"),
            "2 a100 GPUs and 1000 MiB on n1 instead of 4 a100 GPUs",
        ),
    ],
)
def test_a_fragment_of_another_size(slot: Slot, asks: Resources, text: str) -> None:
    assert said(wrong_size(runs(slot, asks), NODE, NOW)).startswith(
        f"Slurm gave fragment 7_0 {text}"
    )


def test_a_node_with_less_use_than_slurm_shows() -> None:
    """After a refused update, 26.05 shows the requested size, but does not give it."""
    fragment = runs(GPU, has(16, 128_000, 4))
    assert wrong_size(fragment, replace(NODE, used=has(20, 150_000, 6)), NOW) is None
    node = replace(NODE, used=has(20, 150_000, 2))
    assert said(wrong_size(fragment, node, NOW)).startswith(
        "Slurm gave fragment 7_0 2 GPUs on n1 instead of 4"
    )


def test_a_fragment_on_several_nodes() -> None:
    """After NumTasks=4 Slurm (22.05) gave each task a node, and each node all the GPUs."""
    fragment = runs(GPU, has(64, 128_000, 4), 4, "n1", "n2")
    assert "gave fragment 7_0 2 nodes (n1, n2) instead of 1 node" in said(
        wrong_size(fragment, NODE, NOW)
    )


def test_sizes_that_are_not_ours_to_judge() -> None:
    small = runs(GPU, has(1, 1000, 1))
    assert wrong_size(replace(small, state=FragmentState.PENDING), NODE, NOW) is None
    assert wrong_size(runs(None, Resources(), 0, "n1", "n2"), NODE, NOW) is None
    assert wrong_size(runs(GPU, has(1, 1000, 1), 0), NODE, NOW) is None  # never released by a tick


def said(reason: Optional[Reason]) -> str:
    assert reason is not None
    return reason_text(reason)
