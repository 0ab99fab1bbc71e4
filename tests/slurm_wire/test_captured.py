"""Output of Slurm 22.05.8, with events that later captured lives lack, is read."""

from __future__ import annotations

from datetime import timedelta

import pytest

from captured_slurm import SITUATIONS, recorded
from slurm_hooks.model import Fragment, FragmentState, NodeState, Snapshot
from slurm_hooks.slurm.gateway import observe

STATE = FragmentState


def see(situation: str) -> Snapshot:
    return observe(recorded(situation), ["malleable"])


def fragments(seen: Snapshot, job: int) -> list[Fragment]:
    """The fragments of the `job`-th job."""
    return list(seen.jobs[job].fragments)


def states(seen: Snapshot, job: int) -> list[FragmentState]:
    return [f.state for f in fragments(seen, job)]


def node_states(seen: Snapshot) -> dict[str, NodeState]:
    return {n.name: n.state for n in seen.nodes}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_everything_is_understood(situation: str) -> None:
    seen = see(situation)
    assert seen.slurm.version == (22, 5, 8)
    assert seen.slurm.kill_wait == timedelta(seconds=5)
    assert seen.slurm.min_job_age == timedelta(hours=1)
    assert len(seen.nodes) == 8
    # Elements 1_* and 4_* carry marks that lack a field; all else is regular.
    assert all("the mark" in text for text in seen.unknown)
    assert {f.state for job in seen.jobs for f in job.fragments}.isdisjoint({STATE.UNKNOWN})


def test_held() -> None:
    (job,) = see("held").jobs
    assert states(see("held"), 0) == [STATE.HELD] * 6
    assert job.request.lease == timedelta(seconds=120)
    assert (job.user, job.partition) == ("root", "malleable")


def test_running_done_and_failed() -> None:
    seen = see("running")
    wanted = [STATE.RUNNING, STATE.RUNNING, STATE.DONE, STATE.FAILED, STATE.PENDING, STATE.HELD]
    assert states(seen, 0) == wanted
    first, second, _, failed, waiting, _ = fragments(seen, 0)
    assert first.nodes == {"n1"}
    assert first.start is not None
    assert first.end == first.start + timedelta(minutes=1)
    assert second.limit == timedelta(minutes=10)
    assert failed.exit_code == "3:0"
    assert waiting.nodes == {"n5"}  # where it will start
    assert seen.jobs[1].user == "nobody"


def test_a_job_that_a_person_requeued_waits_for_its_begin_time() -> None:
    seen = see("requeued")
    fragment = fragments(seen, 1)[0]
    assert fragment.state is STATE.PENDING
    assert fragment.eligible is not None
    assert fragment.eligible > seen.now
    assert fragment.restarts == 1


def test_down_node_future_reservation_planned_small_job() -> None:
    seen = see("trouble")
    assert node_states(seen)["n6"] is NodeState.DOWN
    later = next(r for r in seen.reservations if r.name == "later")
    assert later.start > seen.now
    assert later.nodes == {"n4"}
    assert len(seen.planned) == 1


def test_a_preempted_job_with_our_notes() -> None:
    seen = see("preempted")
    by_index = {f.id.index: f for f in fragments(seen, 0)}
    assert by_index[5].state is STATE.PENDING
    assert by_index[5].eligible is not None
    assert by_index[5].eligible > seen.now
    assert by_index[3].mark.failures == 1
    assert by_index[4].note.startswith("site note; ")
    assert by_index[4].note.endswith(" | more|text")
    assert by_index[1].state is STATE.RUNNING  # though `scontrol hold` made its priority 0
    begun = next(r for r in seen.reservations if r.name == "begun")
    assert begun.start <= seen.now


def test_a_job_has_the_priority_of_its_fragments_with_a_priority() -> None:
    assert [job.priority for job in see("held").jobs] == [0]
    assert see("running").jobs[0].priority > 4_000_000_000
