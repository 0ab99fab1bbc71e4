"""Slurmctld's treatment of fragments on parts of nodes: the fake Slurm and a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contract.part_stages import (
    CPUS,
    GPUS,
    MEMORY_MIB,
    NAMES,
    FakeParts,
    PartStage,
    RealParts,
    fragments,
    gpus_used,
    node,
    release,
)
from contract.stages import until
from fake_parts import resources
from slurm_hooks.model import FragmentState, NodeState, Resources
from slurm_hooks.sandbox import Sandbox, SandboxSpec

KINDS = ["fake", pytest.param("real", marks=pytest.mark.slurm)]
RUNNING, HELD = FragmentState.RUNNING, FragmentState.HELD
GPU = "gpu+cpu:2+mem:4000"
CORE = "cpu:2+mem:4000"


@pytest.fixture(scope="module")
def bare(installation: object) -> Iterator[Sandbox]:
    size = {"cpus": CPUS, "memory_mib": MEMORY_MIB, "gpus": GPUS}
    with Sandbox.up(SandboxSpec(nodes=len(NAMES), slurm=installation, **size)) as box:
        yield box


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest) -> Iterator[PartStage]:
    is_fake = request.param == "fake"
    made: PartStage = FakeParts() if is_fake else RealParts(request.getfixturevalue("bare"))
    yield made
    made.tidy()


def gpus(count: int) -> Resources:
    """A request of so many slots of a GPU. A slot's own GPU has no other name."""
    return Resources(2 * count, 4000 * count, (("gpu", count),))


def states(stage: PartStage, job: int, *indexes: int) -> set[FragmentState]:
    elements = fragments(stage, job)
    return {elements[index].state for index in indexes}


def start(stage: PartStage, job: int, name: str, *sizes: Resources, first: int = 0) -> None:
    """Start fragments of these sizes on a node, in this order."""
    for index, size in enumerate(sizes, first):
        release(stage, job, {index: (name, size)})
        until(stage, lambda index=index: states(stage, job, index) == {RUNNING})  # type: ignore[misc]
        began = stage.now()
        until(stage, lambda began=began: stage.now() > began)  # type: ignore[misc]


def put_back(stage: PartStage, job: int, index: int = 0) -> None:
    assert stage.does(f"scontrol requeue {job}_{index}")
    assert stage.does(f"scontrol uhold {job}_{index}")
    until(stage, lambda: states(stage, job, index) == {HELD})


@pytest.mark.parametrize("slot", [GPU, CORE])
def test_a_fragment_has_any_size_in_turn(stage: PartStage, slot: str) -> None:
    job = stage.submit(2, slot)
    other = fragments(stage, job)[1].asks
    for count in (4, 1, 6, 2, 2):
        size = gpus(count) if slot == GPU else Resources(2 * count, 4000 * count)
        release(stage, job, {0: ("n1", size)})
        assert fragments(stage, job)[0].asks == size
        until(stage, lambda: states(stage, job, 0) == {RUNNING})
        elements = fragments(stage, job)
        assert (elements[0].asks, elements[1].asks, elements[0].nodes) == (size, other, {"n1"})
        used = node(stage, "n1").used
        assert (used.cpus, used.memory_mib, used.gpus) == (size.cpus, size.memory_mib, size.gpus)
        put_back(stage, job)
        assert fragments(stage, job)[0].asks == size
        wait_a_little(stage)


def wait_a_little(stage: PartStage) -> None:
    """24.11 ends a fragment at once that starts within a second of its end on the node."""
    since = stage.now()
    until(stage, lambda: stage.now() > since + 1)


def test_several_sizes_are_written_at_once(stage: PartStage) -> None:
    job = stage.submit(3, GPU)
    release(stage, job, {0: ("n1", gpus(3)), 1: ("n2", gpus(5)), 2: ("n1", gpus(4))})
    until(stage, lambda: states(stage, job, 0, 1, 2) == {RUNNING})
    assert [f.asks.gpus for f in fragments(stage, job).values()] == [3, 5, 4]
    assert [node(stage, name).used.gpus for name in NAMES] == [7, 5]


def test_only_the_first_element_of_a_range_gets_gpus(stage: PartStage) -> None:
    job = stage.submit(3, GPU)
    size = "Gres=gpu:2 CpusPerTask=4 NumCPUs=4 MinCPUsNode=4 MinMemoryNode=8000"
    assert stage.does(f"scontrol update jobid={job}_[0-1] {size}")
    asks = [f.asks for f in fragments(stage, job).values()]
    assert asks == [gpus(2), Resources(4, 8000, (("gpu", 1),)), gpus(1)]


def test_a_size_that_slurm_takes_but_does_not_give_is_detected(stage: PartStage) -> None:
    """22.05 takes a text without its prefix, and gives the same GPUs as before.

    26.05 refuses it, shows the old text, and gives no GPU at all, which only the node shows. The
    whole recipe mends both.
    """
    job = stage.submit(1, GPU)
    is_taken = stage.does(f"scontrol update jobid={job}_0 TresPerNode=gpu:4 ExcNodeList=n2")
    assert fragments(stage, job)[0].asks.gpus == (0 if is_taken else 1)
    assert stage.does(f"scontrol update jobid={job}_0 ExcNodeList=n2")
    assert stage.does(f"scontrol release {job}_0")
    until(stage, lambda: states(stage, job, 0) == {RUNNING})
    assert node(stage, "n1").used.gpus == 1 or not (is_taken or node(stage, "n1").used.gpus)
    put_back(stage, job)
    wait_a_little(stage)
    release(stage, job, {0: ("n1", gpus(1))}, is_told=True)
    until(stage, lambda: states(stage, job, 0) == {RUNNING})
    assert (fragments(stage, job)[0].asks, node(stage, "n1").used.gpus) == (gpus(1), 1)


def test_gpus_alone_do_not_bring_their_processors(stage: PartStage) -> None:
    job = stage.submit(1, GPU)
    start(stage, job, "n1", gpus(2))
    put_back(stage, job)
    wait_a_little(stage)
    assert stage.does(f"scontrol update jobid={job}_0 Gres=gpu:4 StartTime=now")
    assert stage.does(f"scontrol release {job}_0")
    until(stage, lambda: states(stage, job, 0) == {RUNNING})
    assert fragments(stage, job)[0].asks == Resources(4, 8000, (("gpu", 4),))
    assert node(stage, "n1").used.cpus == 4


def test_a_running_fragment_s_size_is_not_changed(stage: PartStage) -> None:
    job = stage.submit(1, GPU)
    start(stage, job, "n1", gpus(2))
    for word in ("Gres=gpu:1", "NumCPUs=1", "MinMemoryNode=1", "CpusPerTask=1", "MinCPUsNode=1"):
        assert not stage.does(f"scontrol update jobid={job}_0 {word}")
    assert fragments(stage, job)[0].asks == gpus(2)


def test_a_fragment_starts_beside_a_job(stage: PartStage) -> None:
    rigid = stage.rigid("n1", resources(4, 8000, 2))
    until(stage, lambda: stage.has_started(rigid))
    job = stage.submit(2, GPU)
    start(stage, job, "n1", gpus(3))
    seen = node(stage, "n1")
    assert (seen.state, seen.used.gpus, seen.free.gpus) == (NodeState.SHARED, 5, 3)
    release(stage, job, {1: ("n1", gpus(4))})
    waits = {"Resources", "InvalidAccount"}  # the second on 23.11.4 without slurmdbd
    until(stage, lambda: fragments(stage, job)[1].reason in waits)
    assert node(stage, "n1").used.gpus == 5


def test_a_node_without_processors_left_reads_as_allocated(stage: PartStage) -> None:
    """It reads so although GPUs are free."""
    rigid = stage.rigid("n1", resources(CPUS, 8000, 2))
    until(stage, lambda: stage.has_started(rigid))
    seen = node(stage, "n1")
    assert (seen.raw_state, seen.used.gpus, seen.free.gpus) == ("ALLOCATED", 2, 0)


@pytest.mark.parametrize(
    ("before", "wants", "lost"),
    [
        ((2, 2, 2), 5, {0, 1}),  # 2 GPUs are free
        ((1, 1, 4), 5, {2}),
        ((1, 1, 4), 7, {0, 2}),
        ((4, 1, 1), 3, {0}),
        ((1, 1, 1), 5, set()),
    ],
)
def test_as_few_fragments_as_needed_are_preempted(
    stage: PartStage, before: tuple[int, ...], wants: int, lost: set[int]
) -> None:
    job = stage.submit(len(before), GPU)
    start(stage, job, "n1", *map(gpus, before))
    rigid = stage.rigid("n1", resources(1, 1000, wants))
    until(stage, lambda: stage.has_started(rigid))
    elements = fragments(stage, job)
    assert {index for index, f in elements.items() if f.state is not RUNNING} == lost
    asks = [elements[index].asks for index in elements]
    assert asks == [gpus(count) for count in before]  # a size outlives a preemption


def test_the_lower_partition_is_preempted_first(stage: PartStage) -> None:
    """The rule holds although its fragment is the younger."""
    job = stage.submit(2, GPU)
    assert stage.does(f"scontrol update jobid={job}_0 Partition=malleable")
    start(stage, job, "n1", gpus(4), gpus(4))
    rigid = stage.rigid("n1", resources(1, 1000, 2))
    until(stage, lambda: stage.has_started(rigid))
    elements = fragments(stage, job)
    assert [elements[i].state is RUNNING for i in (0, 1)] == [True, False]


def test_a_fragment_of_a_higher_partition_takes_the_node_of_lower_fragments(
    stage: PartStage,
) -> None:
    job = stage.submit(4, GPU)
    assert stage.does(f"scontrol update jobid={job}_3 Partition=malleable")
    start(stage, job, "n1", gpus(2), gpus(2))
    start(stage, job, "n2", gpus(2), first=2)
    release(stage, job, {3: ("n1", gpus(8))})
    until(stage, lambda: states(stage, job, 3) == {RUNNING})
    elements = fragments(stage, job)
    assert [elements[i].state is RUNNING for i in (0, 1, 2)] == [False, False, True]


def test_a_node_with_an_ending_fragment_starts_no_fragment(stage: PartStage) -> None:
    """The node shows only its running elements, but an ending element has its GPUs for a
    while yet.
    """
    job = stage.submit(3, GPU, is_stubborn=True)
    start(stage, job, "n1", gpus(2), gpus(3))
    wait_a_little(stage)  # until the script has said that it does not listen
    assert stage.does(f"scontrol requeue {job}_0")
    assert stage.does(f"scontrol uhold {job}_0")
    release(stage, job, {2: ("n1", gpus(1))})
    until(stage, lambda: node(stage, "n1").raw_state.startswith("MIXED+COMPLETING"))
    seen = node(stage, "n1")
    assert (seen.state, seen.free, gpus_used(stage, "n1")) == (NodeState.BUSY, Resources(), 3)
    assert states(stage, job, 2) == {FragmentState.PENDING}
    until(stage, lambda: states(stage, job, 2) == {RUNNING})
    assert states(stage, job, 0) == {HELD}
