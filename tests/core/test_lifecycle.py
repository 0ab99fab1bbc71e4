"""What each state of a fragment calls for."""

from __future__ import annotations

from typing import Any

import pytest

from build import NOW, after, make_fragment, make_job, make_mark, span
from slurm_hooks.core.lifecycle import has_lived, is_finish, is_quick_death, upkeep
from slurm_hooks.model import (
    Cause,
    Finish,
    Fragment,
    FragmentState,
    Hold,
    Notice,
    Remark,
    Shrink,
)
from slurm_hooks.settings import Settings

SETTINGS = Settings()  # notice 20 s, start timeout 60 s, three failures within 60 s
HELD, PENDING, RUNNING = FragmentState.HELD, FragmentState.PENDING, FragmentState.RUNNING
DONE, FAILED, TIMED_OUT = FragmentState.DONE, FragmentState.FAILED, FragmentState.TIMED_OUT


def steps(fragment: Fragment) -> list[tuple[str, Cause]]:
    """Kind and cause of the actions for a job with this fragment and one that waits."""
    care = upkeep(make_job(fragment, held=1), NOW, SETTINGS)
    return [(type(a).__name__, a.cause) for a in care.actions]


@pytest.mark.parametrize(
    ("state", "fields", "wanted"),
    [
        (HELD, {}, []),
        (HELD, {"noticed": after(-5)}, []),
        (PENDING, {"released": after(-5)}, []),
        (PENDING, {"released": after(-5), "eligible": after(-5)}, []),
        (PENDING, {"released": after(-5), "eligible": after(115)}, [("Hold", Cause.PREEMPTED)]),
        (PENDING, {"released": after(-61)}, [("Hold", Cause.NOT_STARTED)]),
        (PENDING, {}, [("Hold", Cause.NOT_STARTED)]),
        (RUNNING, {}, []),
        (RUNNING, {"noticed": after(-19)}, [("Notice", Cause.REMINDED)]),
        (RUNNING, {"noticed": after(-20)}, [("Shrink", Cause.NOTICE_OVER)]),
        (FragmentState.ENDING, {}, []),
        (FragmentState.ENDING, {"noticed": after(-100)}, []),
        (FragmentState.CANCELLED, {}, []),
        (FragmentState.UNKNOWN, {}, []),
        (FragmentState.UNKNOWN, {"noticed": after(-100)}, []),
        (TIMED_OUT, {}, [("Shrink", Cause.LEASE_ENDED)]),
        (TIMED_OUT, {"noticed": after(-100)}, [("Shrink", Cause.LEFT)]),
        (DONE, {"noticed": after(-10)}, [("Shrink", Cause.LEFT)]),
        (DONE, {"limit": span(200)}, [("Shrink", Cause.LEASE_ENDED)]),
        (DONE, {}, [("Finish", Cause.FINISHED)]),
        (FAILED, {"exit_code": "256"}, [("Shrink", Cause.DIED)]),
        (FAILED, {"noticed": after(-10)}, [("Shrink", Cause.LEFT)]),
    ],
)
def test_one_fragment(
    state: FragmentState, fields: dict[str, Any], wanted: list[tuple[str, Cause]]
) -> None:
    assert steps(make_fragment(0, state, ["n1"], **fields)) == wanted


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, True),  # 400 s before its lease's end
        ({"noticed": after(-2)}, False),  # told to leave and left
        ({"noticed": after(5)}, True),  # told after it had ended
        ({"limit": span(229)}, False),  # 30 s before the end: the agent left by itself
        ({"limit": span(230)}, False),
        ({"limit": span(231)}, True),
        ({"limit": None}, True),
        ({"start": None}, False),
    ],
)
def test_finish_or_leave(fields: dict[str, Any], wanted: bool) -> None:
    fields.setdefault("end", after(0) if "limit" in fields else after(-1))
    assert is_finish(make_fragment(0, DONE, ["n1"], **fields), SETTINGS) is wanted


@pytest.mark.parametrize("state", [s for s in FragmentState if s is not DONE])
def test_only_a_clean_exit_can_finish(state: FragmentState) -> None:
    assert not is_finish(make_fragment(0, state, ["n1"]), SETTINGS)


def test_a_finish_cancels_what_waits_and_lets_the_rest_end() -> None:
    job = make_job(
        make_fragment(0, DONE, ["n1"]),
        make_fragment(1, RUNNING, ["n2"]),
        make_fragment(2, PENDING, ["n3"], released=after(-5)),
        make_fragment(3, TIMED_OUT, ["n4"]),
        held=1,
    )
    care = upkeep(job, NOW, SETTINGS)
    assert care.is_over
    assert care.growable == ()
    (finish,) = care.actions
    assert isinstance(finish, Finish)
    assert [f.index for f in finish.fragments] == [2, 4]


def test_a_finish_that_is_done_is_not_repeated() -> None:
    job = make_job(make_fragment(0, DONE, ["n1"]), make_fragment(1, FragmentState.CANCELLED))
    assert upkeep(job, NOW, SETTINGS).actions == ()


def dead(index: int = 0, node: str = "n1", **fields: Any) -> Fragment:
    fields.setdefault("start", after(-10))
    return make_fragment(index, FAILED, [node], end=after(-1), exit_code="256", **fields)


@pytest.mark.parametrize(
    ("fragment", "wanted"),
    [
        (dead(), True),
        (dead(start=after(-61)), False),
        (dead(start=after(-60)), True),
        (dead(noticed=after(-3)), False),
        (dead(start=None), False),
        (make_fragment(0, DONE, ["n1"], start=after(-5)), False),
    ],
)
def test_quick_death(fragment: Fragment, wanted: bool) -> None:
    assert is_quick_death(fragment, SETTINGS) is wanted


def test_the_first_deaths_are_counted_once_a_tick() -> None:
    job = make_job(dead(0), dead(1, "n2", failures=1))
    marks = [a.mark for a in upkeep(job, NOW, SETTINGS).actions if isinstance(a, Shrink)]
    assert [m.failures for m in marks if m] == [2, 2]
    assert all(m.noticed == NOW and not m.avoid for m in marks if m)


def test_the_third_death_stops_the_job() -> None:
    job = make_job(dead(0, failures=2), make_fragment(1, RUNNING, ["n2"], start=after(-10)), held=2)
    care = upkeep(job, NOW, SETTINGS)
    assert care.is_over
    marks = [a.mark for a in care.actions if isinstance(a, (Remark, Shrink))]
    assert len(marks) == 4
    assert all(m and m.stopped.startswith("failed-3-times:exit-") for m in marks)
    finished = [f.index for a in care.actions if isinstance(a, Finish) for f in a.fragments]
    assert finished == [0, 1, 2, 3]


def test_a_stopped_job_stays_stopped() -> None:
    job = make_job(make_fragment(0, FragmentState.CANCELLED, stopped="why"), held=1)
    care = upkeep(job, NOW, SETTINGS)
    assert care.is_over
    assert [type(a) for a in care.actions] == [Finish]
    assert "stopped: why" in care.reasons


def test_where_others_live_the_node_is_blamed() -> None:
    job = make_job(dead(0, failures=2), make_fragment(1, RUNNING, ["n2"]))
    care = upkeep(job, NOW, SETTINGS)
    assert not care.is_over
    (mark,) = (a.mark for a in care.actions if isinstance(a, Shrink))
    assert mark is not None
    assert mark.avoid == {"n1"}


def test_a_job_that_trains_is_forgiven() -> None:
    job = make_job(
        make_fragment(0, RUNNING, ["n2"], failures=2),
        make_fragment(1, failures=1),
        make_fragment(2),
    )
    remarks = [a for a in upkeep(job, NOW, SETTINGS).actions if isinstance(a, Remark)]
    assert [a.fragment.index for a in remarks] == [0, 1]
    assert {a.mark.failures for a in remarks} == {0}
    assert {a.cause for a in remarks} == {Cause.RECOVERED}


@pytest.mark.parametrize(("age_s", "wanted"), [(60, False), (61, True)])
def test_has_lived(age_s: int, wanted: bool) -> None:
    job = make_job(make_fragment(0, RUNNING, ["n1"], start=after(-age_s)))
    assert has_lived(job, NOW, SETTINGS) is wanted


def test_a_leaving_fragment_proves_no_life() -> None:
    job = make_job(make_fragment(0, RUNNING, ["n1"], noticed=after(-1)))
    assert not has_lived(job, NOW, SETTINGS)


def test_what_arrives_and_what_can_grow() -> None:
    job = make_job(
        make_fragment(0, PENDING, ["n1"], released=after(-5)),
        make_fragment(1, PENDING, ["n2"], released=after(-500)),
        make_fragment(2, DONE, ["n3"], noticed=after(-3)),
        held=2,
    )
    care = upkeep(job, NOW, SETTINGS)
    assert [f.id.index for f in care.arriving] == [0]
    assert [f.id.index for f in care.growable] == [3, 4]
    assert {type(a) for a in care.actions} == {Hold, Shrink}


def test_notice_is_repeated_with_the_first_time() -> None:
    fragment = make_fragment(0, RUNNING, ["n1"], noticed=after(-7))
    (action,) = upkeep(make_job(fragment), NOW, SETTINGS).actions
    assert isinstance(action, Notice)
    assert action.mark == make_mark(noticed=after(-7))


@pytest.mark.parametrize(
    ("fields", "rested"),
    [
        ({}, True),
        ({"eligible": after(121)}, False),  # requeued this second
        ({"eligible": after(118)}, False),
        ({"eligible": after(117)}, True),
        ({"eligible": after(-5)}, True),
        ({"noticed": after(-2)}, False),  # found dead two seconds ago
        ({"noticed": after(-3)}, True),
    ],
)
def test_a_fragment_rests_before_it_runs_again(fields: dict[str, Any], rested: bool) -> None:
    """A node refuses the credential of a job that ended there in this second."""
    job = make_job(make_fragment(0, FragmentState.HELD, **fields))
    assert bool(upkeep(job, NOW, SETTINGS).growable) is rested
