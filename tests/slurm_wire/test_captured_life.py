"""The life in `tests/capture.py`, as each release of Slurm printed it, is read the same everywhere.

MALLEABLE_CAPTURED names another directory with such answers, which `make test-matrix` has made.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from captured_slurm import CAPTURED, recorded_in
from slurm_hooks.model import FragmentState, NodeState, Snapshot
from slurm_hooks.slurm.gateway import observe

STATE = FragmentState
RELEASES = ["24.11", "25.11", "26.05"]
FRESH = os.environ.get("MALLEABLE_CAPTURED")
LIVES = [*(CAPTURED / r for r in RELEASES), *([Path(FRESH)] if FRESH else [])]
SITUATIONS = {
    "back", "cancelled", "held", "leaving", "partition_down", "planned", "preempted", "requeued",
    "running", "timed_out", "trouble",
}  # fmt: skip


@pytest.fixture(params=LIVES, ids=lambda path: path.name)
def life(request: pytest.FixtureRequest) -> Path:
    """A directory of answers."""
    path: Path = request.param
    return path


@pytest.fixture(params=[CAPTURED / "22.05", *LIVES], ids=lambda path: path.name)
def like(request: pytest.FixtureRequest) -> Path:
    """A directory of answers, or of the oldest answers, which show almost the same life."""
    path: Path = request.param
    return path


def see(life: Path, situation: str) -> Snapshot:
    return observe(recorded_in(life, situation), ["malleable"])


def states(seen: Snapshot, job: int) -> list[FragmentState]:
    return [f.state for f in seen.jobs[job].fragments]


def node_states(seen: Snapshot) -> dict[str, NodeState]:
    return {n.name: n.state for n in seen.nodes}


def test_everything_is_there_and_understood(life: Path) -> None:
    assert {path.name.split(".")[0] for path in life.glob("*.squeue.txt")} == SITUATIONS
    for situation in sorted(SITUATIONS):
        seen = see(life, situation)
        assert not seen.unknown
        assert len(seen.nodes) == 8
        assert len(seen.slurm.version) == 3
        assert seen.slurm.kill_wait == timedelta(seconds=5)
        assert seen.slurm.min_job_age == timedelta(hours=1)
        assert {f.state for job in seen.jobs for f in job.fragments}.isdisjoint({STATE.UNKNOWN})


@pytest.mark.parametrize("release", RELEASES)
def test_the_directory_is_of_its_release(release: str) -> None:
    year, month, _ = see(CAPTURED / release, "held").slurm.version
    assert f"{year}.{month:02d}" == release


@pytest.mark.parametrize("word", ["/tmp/", "munge", "PREEMPT_DYNAMIC", "generic"])
def test_captured_answers_name_no_machine(life: Path, word: str) -> None:
    for path in life.glob("*.txt"):
        assert word not in path.read_text(), path


def test_held(life: Path) -> None:
    (job,) = see(life, "held").jobs
    assert [f.state for f in job.fragments] == [STATE.HELD] * 6
    assert job.request.lease == timedelta(seconds=120)
    assert (job.user, job.partition) == ("nobody", "malleable")
    assert job.priority == 0


def test_planned(like: Path) -> None:
    seen = see(like, "planned")
    assert [len(start.nodes) for start in seen.planned] == [8, 8]
    assert seen.now < seen.planned[0].start < seen.planned[1].start


def test_running_done_failed_and_waiting(life: Path) -> None:
    job, other = see(life, "running").jobs
    assert other.user == "root"
    first, second, done, failed, waiting, held = job.fragments
    assert [first.state, second.state, done.state] == [STATE.RUNNING, STATE.RUNNING, STATE.DONE]
    assert [failed.state, waiting.state, held.state] == [STATE.FAILED, STATE.PENDING, STATE.HELD]
    assert first.nodes == {"n1"}
    assert first.start is not None
    assert first.end == first.start + timedelta(minutes=1)
    assert second.limit == timedelta(minutes=10)
    assert (done.exit_code, failed.exit_code) == ("0:0", "3:0")


def test_leaving(like: Path) -> None:
    seen = see(like, "leaving")
    assert states(seen, 1)[:2] == [STATE.ENDING] * 2
    by_node = node_states(seen)
    assert by_node["n2"] is NodeState.LEAVING  # allocated and draining
    assert by_node["n3"] is NodeState.LEAVING  # drained
    assert by_node["n6"] is NodeState.BUSY  # completing
    assert by_node["n8"] is NodeState.LEAVING  # in a maintenance reservation


def test_a_job_is_requeued_by_a_person(life: Path) -> None:
    seen = see(life, "requeued")
    fragment = seen.jobs[1].fragments[4]
    assert fragment.state is STATE.PENDING
    assert fragment.eligible is not None
    assert fragment.eligible > seen.now
    assert fragment.restarts == 1


def test_trouble(life: Path) -> None:
    seen = see(life, "trouble")
    assert node_states(seen)["n6"] is NodeState.DOWN
    (later,) = [r for r in seen.reservations if r.name == "later"]
    assert later.nodes == {"n4"}
    assert later.start > seen.now
    assert [start.nodes for start in seen.planned] == [{"n5"}]


def test_timed_out(like: Path) -> None:
    fragment = see(like, "timed_out").jobs[0].fragments[0]
    assert fragment.state is STATE.TIMED_OUT
    assert fragment.start is not None
    assert fragment.end is not None
    assert fragment.limit is not None
    late = fragment.end - fragment.start - fragment.limit
    assert timedelta(0) < late < timedelta(seconds=40)  # a check each half minute, then KillWait


def test_an_element_comes_back(like: Path) -> None:
    (job, _) = see(like, "back").jobs
    back = [f for f in job.fragments if f.state is STATE.HELD and f.restarts]
    assert [f.id.index for f in back] == [0, 1, 3]  # timed out, running, failed
    assert all(not f.nodes for f in back)


def test_a_preempted_job_with_notes_of_others(life: Path) -> None:
    seen = see(life, "preempted")
    by_index = {f.id.index: f for f in seen.jobs[1].fragments}
    assert by_index[5].state is STATE.PENDING
    assert by_index[5].eligible is not None
    assert by_index[5].eligible > seen.now
    assert by_index[0].note.startswith("site note; ")
    assert by_index[0].note.endswith(" | more|text")


def test_partition_down(like: Path) -> None:
    assert all("malleable" not in node.partitions for node in see(like, "partition_down").nodes)


def test_cancelled(like: Path) -> None:
    assert set(states(see(like, "cancelled"), 0)) <= {STATE.CANCELLED, STATE.DONE}
