"""Fragments of different sizes on parts of nodes: torch's ranks, and no sample lost or repeated."""

from __future__ import annotations

import json
import time

import pytest

pytest.importorskip("torch")

from waiting import wait_until

from .gang import Gang
from .test_just_in_time import LONG, SCRIPT, resumed_after, train_on

pytestmark = [pytest.mark.torch]
NNODES = "1:6"  # as the plugin does: an agent for each fragment


def start(gang: Gang, fragment: int, gpus: int, *, processes: int = 0) -> None:
    """Start a fragment on so many GPUs of a node. Its script starts a process for each, or
    so many.
    """
    gang.flags = [f"--nproc-per-node={processes or gpus}"]
    gang.extra |= {"SLURM_GPUS_ON_NODE": str(gpus)}
    gang.start(fragment, NNODES, LONG)


def begun(gang: Gang, world: int) -> list[tuple[int, int]]:
    """Ranks with their fragments, in the newest round of this size."""
    fragments = {b["rank"]: b["fragment"] for b in gang.begins() if b["world"] == world}
    return sorted((int(rank), int(fragment)) for rank, fragment in fragments.items())


def wait_in_vain(gang: Gang) -> None:
    """Wait until an agent is on the waiting list, and two seconds more."""
    wait_until(lambda: '"ready"' in gang.state(), explain=gang.dump)
    time.sleep(2.0)


@pytest.fixture
def parts(gang: Gang) -> Gang:
    """A job that asks for 4 to 6 GPUs. Its model counts how often each sample was learnt."""
    gang.script = SCRIPT
    gang.extra |= {"SLURM_SPANK_MALLEABLE": "4-6,unit=gpu", "TORCH_ELASTIC_WORKER_IDENTICAL": "1"}
    gang.extra |= {"MALLEABLE_LAST_CALL_S": "0.5"}
    return gang


def test_unequal_fragments_are_a_single_world_that_grows_and_shrinks(parts: Gang) -> None:
    start(parts, 1, 3)
    wait_in_vain(parts)
    assert parts.rounds() == []  # MIN is 4 workers, and here are 3
    start(parts, 0, 1)
    parts.wait_world(4)
    assert begun(parts, 4) == [(0, 0), (1, 1), (2, 1), (3, 1)]
    train_on(parts)
    t = time.time()
    start(parts, 2, 2)
    parts.wait_world(6, since=t)
    assert begun(parts, 6) == [(0, 0), (1, 1), (2, 1), (3, 1), (4, 2), (5, 2)]
    assert resumed_after(parts, t) > 0
    train_on(parts)
    t = time.time()
    start(parts, 3, 1)  # MAX is 6
    wait_in_vain(parts)
    assert len(parts.rounds()) == 2
    t = parts.notify(2)
    parts.wait_world(5, since=t)
    assert resumed_after(parts, t) > 0
    assert parts.wait_exit(2) == [0]
    assert [r["size"] for r in parts.rounds()] == [4, 6, 5]
    assert "round 2 formed: 6 workers in 3 fragments (0 1 2), was 4" in parts.log(0)
    (parts.work / "enough").touch()
    assert parts.wait_exit(0, 1, 3) == [0, 0, 0], parts.dump()
    assert json.loads((parts.work / "finished").read_text())["off"] == 0
    words = [parts.log(fragment).count("TORCH_ELASTIC_WORKER_IDENTICAL") for fragment in (0, 1, 3)]
    assert words == [1, 1, 1]


def test_a_process_of_several_gpus_counts_as_several(parts: Gang) -> None:
    """For example, tensor parallel within a process: 2 processes, 5 workers."""
    start(parts, 0, 2, processes=1)
    start(parts, 1, 3, processes=1)
    parts.wait_world(2)
    assert [r["size"] for r in parts.rounds()] == [5]
