"""The unused resources of nodes: on idle nodes, on partly used nodes, and stranded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from build import make_fragment, make_job, make_mark, make_node, make_request, make_snapshot
from slurm_hooks.model import (
    FragmentState,
    Intent,
    MalleableJob,
    Node,
    NodeState,
    Resources,
    Slot,
    Verb,
    Why,
)
from slurm_hooks.model.resources import Gres
from slurm_hooks.model.unused import Unused, unused_of

OURS = frozenset({"malleable"})
GPUS: Gres = (("gpu", 8), ("gpu:a100", 8))
SHARED = NodeState.SHARED


def gpu_node(
    state: NodeState = NodeState.FREE, cpus: int = 0, gpus: int = 0, used_mib: int = 0, **more: Any
) -> Node:
    """A node of 32 CPUs, 256,000 MiB and 8 GPUs of which so many are used."""
    used = Resources(cpus, used_mib, (("gpu", gpus), ("gpu:a100", gpus)))
    more = {"cpus": 32, "memory_mib": 256_000, "gres": GPUS, "used": used, **more}
    return make_node(more.pop("name", "n1"), state, **more)


def unused(*nodes: Node, jobs: tuple[MalleableJob, ...] = (), actions: tuple[Intent, ...] = ()):  # type: ignore[no-untyped-def]
    return unused_of(make_snapshot(*jobs, nodes=nodes), OURS, actions)


@pytest.mark.parametrize(
    ("node", "gpus", "cpus"),
    [
        (gpu_node(), Unused(idle=8), Unused(idle=32)),
        (gpu_node(cpus=2), Unused(idle=8), Unused(idle=30)),  # set apart for the node's own system
        (gpu_node(SHARED, 8, 2, 32_000), Unused(part=6), Unused(part=24)),
        # Fewer CPUs than GPUs are left: as many GPUs can be used.
        (gpu_node(SHARED, 29, 2, 32_000), Unused(part=3, stranded=3), Unused(part=3)),
        (gpu_node(NodeState.BUSY, 32, 2, 32_000), Unused(stranded=6), Unused()),
        (gpu_node(SHARED, 8, 2, 256_000), Unused(stranded=6), Unused(stranded=24)),
        (gpu_node(SHARED, 8, 8, 32_000), Unused(), Unused(part=24)),
        (
            gpu_node(SHARED, 8, 2, 0, memory_mib=0),
            Unused(part=6),
            Unused(part=24),
        ),  # no memory told
        (gpu_node(NodeState.BUSY), Unused(), Unused()),  # its use is not reported
        (gpu_node(NodeState.BUSY, 32, 8, 256_000), Unused(), Unused()),
    ],
)
def test_the_unused_part_of_a_node(node: Node, gpus: Unused, cpus: Unused) -> None:
    assert unused(node) == {"gpu": gpus, "cpu": cpus}


@pytest.mark.parametrize("state", [NodeState.DOWN, NodeState.LEAVING, NodeState.UNKNOWN])
def test_a_node_out_of_service_has_no_unused_part(state: NodeState) -> None:
    assert unused(gpu_node(state)) == {}


def test_nodes_that_no_malleable_job_can_use_are_not_counted() -> None:
    assert unused(gpu_node(partitions=frozenset({"main"}))) == {}


def test_nodes_are_added_up_and_gpus_are_named_only_where_they_exist() -> None:
    nodes = (gpu_node(), gpu_node(SHARED, 8, 2, name="n2"), make_node("n3", cpus=4))
    assert unused(*nodes) == {"gpu": Unused(8, 6), "cpu": Unused(36, 24)}
    assert unused(make_node("n3", cpus=4)) == {"cpu": Unused(idle=4)}


@pytest.mark.parametrize("state", [FragmentState.RUNNING, FragmentState.PENDING])
def test_a_whole_node_of_a_fragment_is_used(state: FragmentState) -> None:
    jobs = (make_job(make_fragment(0, state, ["n1"])),)
    nodes = (gpu_node(NodeState.BUSY, 32, 0), gpu_node(SHARED, 8, 2, name="n2"))
    assert unused(*nodes, jobs=jobs)["gpu"] == Unused(part=6)
    assert unused(gpu_node(), jobs=jobs)["gpu"] == Unused()


@pytest.mark.parametrize(
    ("state", "left"), [(FragmentState.RUNNING, 6), (FragmentState.PENDING, 4)]
)
def test_a_part_is_used_from_its_release_and_counted_once(state: FragmentState, left: int) -> None:
    """Slurm itself counts the resources of a running fragment."""
    mark = make_mark(replace(make_request(), slot=Slot("gpu")), slots=2)
    asks = Resources(8, 64_000, (("gpu", 2),))
    jobs = (make_job(make_fragment(0, state, ["n1"], mark=mark, asks=asks)),)
    assert unused(gpu_node(SHARED, 8, 2, 64_000), jobs=jobs)["gpu"] == Unused(part=left)


def test_nodes_that_a_plan_gives_away_are_used() -> None:
    job = make_job(make_fragment(0), make_fragment(1))
    first, second = (f.id for f in job.fragments)
    asks = Resources(8, 64_000, (("gpu", 2),))
    whole = Intent(first, Why.HOLE_OPEN, Verb.GROW, nodes=frozenset({"n1"}))
    part = Intent(second, Why.HOLE_OPEN, Verb.GROW, nodes=frozenset({"n2"}), asks=asks)
    nodes = (gpu_node(), gpu_node(SHARED, 8, 2, name="n2"))
    assert unused(*nodes, jobs=(job,), actions=(whole, part)) == {
        "gpu": Unused(part=4),
        "cpu": Unused(part=16),
    }
