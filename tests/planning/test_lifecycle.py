"""What each state of a fragment calls for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from build import NOW, after, make_fragment, make_job, make_mark, make_request, make_slurm
from slurm_hooks.model import (
    Action,
    AvoidedNode,
    Cancel,
    Cause,
    Fragment,
    FragmentState,
    Hold,
    MalleableJob,
    Mark,
    Notice,
    PutBack,
    Said,
    SetMark,
)
from slurm_hooks.planning.cancels import CancelScope, cancel_scope
from slurm_hooks.planning.lifecycle import Upkeep, is_finish, upkeep
from slurm_hooks.settings import Settings

SETTINGS = Settings()  # notice 20 s, start timeout 60 s, three failures
SLURM = make_slurm()
HELD, PENDING, RUNNING = FragmentState.HELD, FragmentState.PENDING, FragmentState.RUNNING
DONE, FAILED, TIMED_OUT = FragmentState.DONE, FragmentState.FAILED, FragmentState.TIMED_OUT
LOST, SPECIAL, ENDING = FragmentState.LOST, FragmentState.SPECIAL, FragmentState.ENDING
CANCELLED, UNKNOWN = FragmentState.CANCELLED, FragmentState.UNKNOWN
SUSPENDED = FragmentState.SUSPENDED
WHOLE, PART = CancelScope.WHOLE, CancelScope.PART


def care_for(job: MalleableJob, settings: Settings = SETTINGS) -> Upkeep:
    return upkeep(job, NOW, settings, SLURM)


def steps(fragment: Fragment) -> list[tuple[str, Cause]]:
    """Kind and cause of the actions for a job with this fragment and one that waits."""
    care = care_for(make_job(fragment, held=1))
    return [(type(a).__name__, a.cause) for a in care.actions]


def marks(actions: tuple[Action, ...]) -> dict[int, Mark]:
    """The marks that are written, by index."""
    told = [a for a in actions if isinstance(a, (SetMark, PutBack, Notice))]
    return {a.fragment.index: a.mark for a in told if a.mark is not None}


@pytest.mark.parametrize(
    ("state", "fields", "wanted"),
    [
        (HELD, {}, []),
        (HELD, {"noticed": after(-5)}, []),
        (HELD, {"reason": "BadConstraints", "nodes": ["n1"]}, [("SetMark", Cause.UNFIT)]),
        (
            HELD,
            {"reason": "BadConstraints", "nodes": ["n1"], "unfit": (AvoidedNode("n1", after(-9)),)},
            [],
        ),
        (PENDING, {"released": after(-5)}, []),
        (PENDING, {"released": after(-5), "eligible": after(-5)}, []),
        (PENDING, {"released": after(-5), "eligible": after(115)}, [("Hold", Cause.PREEMPTED)]),
        (
            PENDING,
            {"released": after(-61)},
            [("Hold", Cause.NOT_STARTED), ("SetMark", Cause.NOT_STARTED)],
        ),
        (
            PENDING,
            {"released": after(-5), "reason": "Dependency"},
            [("Hold", Cause.NOT_STARTED), ("SetMark", Cause.NOT_STARTED)],
        ),
        (PENDING, {"released": after(-5), "reason": "Resources"}, []),
        (PENDING, {}, [("Hold", Cause.NOT_STARTED), ("SetMark", Cause.NOT_STARTED)]),
        (RUNNING, {}, []),
        (RUNNING, {"priority": 7}, [("SetMark", Cause.NOTED), ("Hold", Cause.SECURED)]),
        (RUNNING, {"noticed": after(-19)}, [("Notice", Cause.REMINDED)]),
        (RUNNING, {"noticed": after(-19), "said": Said.LEAVING}, []),
        (RUNNING, {"noticed": after(-20)}, [("PutBack", Cause.NOTICE_OVER)]),
        (RUNNING, {"noticed": after(3600)}, [("PutBack", Cause.NOTICE_OVER)]),  # clock set back
        (SUSPENDED, {}, []),
        (ENDING, {}, []),
        (ENDING, {"noticed": after(-100)}, []),
        (UNKNOWN, {}, []),
        (UNKNOWN, {"noticed": after(-100)}, []),
        (TIMED_OUT, {}, [("PutBack", Cause.LEASE_ENDED)]),
        (TIMED_OUT, {"noticed": after(-100)}, [("PutBack", Cause.LEFT)]),
        (DONE, {"noticed": after(-10)}, [("PutBack", Cause.LEFT)]),
        (DONE, {"said": Said.LEAVING}, [("PutBack", Cause.LEFT)]),
        (DONE, {"said": Said.TRAINED}, [("PutBack", Cause.DIED)]),
        (DONE, {}, [("PutBack", Cause.DIED)]),  # of a job with rounds
        (DONE, {"said": Said.FINISHED}, [("Cancel", Cause.FINISHED)]),
        (FAILED, {"exit_code": "1:0"}, [("PutBack", Cause.DIED)]),
        (FAILED, {"noticed": after(-10)}, [("PutBack", Cause.LEFT)]),
        (LOST, {}, [("PutBack", Cause.DIED)]),
        (SPECIAL, {"released": after(-90), "restarts": 1}, [("SetMark", Cause.DIED)]),
        (SPECIAL, {"released": after(-90), "restarts": 1, "noticed": after(-9)}, []),
        (
            HELD,
            {"released": after(-90), "restarts": 1, "exit_code": "3:0"},
            [("SetMark", Cause.DIED)],
        ),
        (HELD, {"released": after(-90), "restarts": 1, "run": 1, "exit_code": "3:0"}, []),
        (HELD, {"released": after(-90), "restarts": 1, "exit_code": "143:0"}, []),
        (HELD, {"released": after(-90), "restarts": 1, "exit_code": "0:15"}, []),
    ],
)
def test_one_fragment(
    state: FragmentState, fields: dict[str, Any], wanted: list[tuple[str, Cause]]
) -> None:
    nodes = fields.pop("nodes", [] if state is HELD else ["n1"])
    assert steps(make_fragment(0, state, nodes, **fields)) == wanted


@pytest.mark.parametrize(
    ("fields", "has_agent", "wanted"),
    [
        ({"said": Said.FINISHED}, True, True),
        ({"said": Said.FINISHED, "noticed": after(-2)}, True, True),  # told, and finished first
        ({"said": Said.TRAINED}, True, False),
        ({"said": Said.LEAVING}, True, False),
        ({"said": Said.NOTHING}, True, False),  # others have joined: its script gave up early
        ({"said": Said.NOTHING}, False, True),  # an ordinary script
    ],
)
def test_the_round_s_own_word_decides(
    fields: dict[str, Any], has_agent: bool, wanted: bool
) -> None:
    """However long before the end of its lease it exits."""
    other = make_fragment(1, has_agent=has_agent)
    done = make_fragment(0, DONE, ["n1"], has_agent=False, **fields)
    assert is_finish(done, make_job(done, other)) is wanted


@pytest.mark.parametrize("state", [s for s in FragmentState if s is not DONE])
def test_only_a_clean_exit_can_finish(state: FragmentState) -> None:
    fragment = make_fragment(0, state, ["n1"], said=Said.FINISHED, has_agent=False)
    assert not is_finish(fragment, make_job(fragment))


def test_a_finish_cancels_what_waits_and_lets_the_rest_end() -> None:
    job = make_job(
        make_fragment(0, DONE, ["n1"], said=Said.FINISHED),
        make_fragment(1, RUNNING, ["n2"]),
        make_fragment(2, PENDING, ["n3"], released=after(-5)),
        make_fragment(3, TIMED_OUT, ["n4"]),
        held=1,
    )
    care = care_for(job)
    assert care.is_over
    assert care.growable == ()
    told, finish = care.actions
    assert isinstance(told, SetMark)  # those that told of the finish may be forgotten first
    assert (told.fragment.index, told.mark.is_finished) == (1, True)
    assert isinstance(finish, Cancel)
    assert [f.index for f in finish.fragments] == [2, 4]


def test_a_finish_is_not_forgotten_with_those_who_told_of_it() -> None:
    job = make_job(make_fragment(1, RUNNING, ["n2"], is_finished=True))
    job = replace(job, request=replace(job.request, fragments=3))
    assert care_for(job).is_over


def test_a_finish_that_is_done_is_not_repeated() -> None:
    job = make_job(make_fragment(0, DONE, ["n1"], said=Said.FINISHED), make_fragment(1, CANCELLED))
    assert care_for(job).actions == ()


# -- cancelled by the user


def test_a_cancel_is_final_for_what_had_just_ended() -> None:
    """scancel passes over ended elements; to put one back would revive the job."""
    job = make_job(make_fragment(0, TIMED_OUT, ["n1"]), make_fragment(1, CANCELLED))
    care = care_for(job)
    assert care.is_over
    assert care.actions == ()


def test_elements_without_a_record_were_cancelled_if_slurm_says_so_of_their_array() -> None:
    """Slurm keeps no record of an element that never ran; one that is forgotten (MinJobAge) has
    none either."""
    job = make_job(make_fragment(0, TIMED_OUT, ["n1"]))
    job = replace(job, request=replace(job.request, fragments=2))
    assert not care_for(job).is_over
    assert care_for(replace(job, is_cut=True)).is_over


def test_a_paused_job_grows_nowhere() -> None:
    job = make_job(make_fragment(0, RUNNING, ["n1"], is_paused=True), held=3)
    care = care_for(job)
    assert care.growable == ()
    assert any("malleable release 7" in reason for reason in care.reasons)


def test_what_was_cancelled_long_ago_does_not_end_the_job() -> None:
    ended = make_fragment(0, TIMED_OUT, ["n1"], gone=1)
    care = care_for(make_job(ended, make_fragment(1, CANCELLED)))
    assert not care.is_over
    assert [type(a) for a in care.actions] == [PutBack]


def test_a_cancel_scope_a_part_is_noted() -> None:
    job = make_job(make_fragment(0, RUNNING, ["n1"]), make_fragment(1, CANCELLED), held=1)
    care = care_for(job)
    assert not care.is_over
    assert {index: mark.gone for index, mark in marks(care.actions).items()} == {0: 1, 2: 1}


def test_while_it_is_not_clear_nothing_is_put_back() -> None:
    job = make_job(
        make_fragment(0, TIMED_OUT, ["n1"]),
        make_fragment(1, ENDING, ["n2"]),
        make_fragment(2, CANCELLED),
    )
    care = care_for(job)
    assert not care.is_over
    assert care.actions == ()


@pytest.mark.parametrize(
    ("back_s", "cancel_s", "wanted"),
    [(-9, -9, WHOLE), (-9, -5, WHOLE), (-60, -5, PART), (-5, -9, PART)],
)
def test_what_was_put_back_in_the_moment_of_the_cancel(
    back_s: float, cancel_s: float, wanted: CancelScope
) -> None:
    back = make_fragment(0, HELD, noticed=after(back_s))
    job = make_job(back, make_fragment(1, CANCELLED, end=after(cancel_s)))
    assert cancel_scope(job, make_slurm()) is wanted


@pytest.mark.parametrize(("requeued_s", "wanted"), [(-9, WHOLE), (3, PART)])
def test_who_left_by_itself_after_a_cancel_scope_others_goes_on(
    requeued_s: float, wanted: CancelScope
) -> None:
    slurm = make_slurm()
    eligible = after(requeued_s) + slurm.requeue_wait
    told = make_fragment(0, HELD, noticed=after(-9), eligible=eligible)
    job = make_job(told, make_fragment(1, CANCELLED, end=after(-5)))
    assert cancel_scope(job, slurm) is wanted


def test_too_few_left_to_reach_the_minimum() -> None:
    request = make_request(2, 3)
    job = make_job(
        make_fragment(0, HELD, request=request),
        make_fragment(1, CANCELLED, request=request),
        make_fragment(2, CANCELLED, request=request),
    )
    assert "stopped: too-few-fragments-left" in care_for(job).reasons


# -- failures


def dead(index: int = 0, node: str = "n1", **fields: Any) -> Fragment:
    fields.setdefault("exit_code", "1:0")
    return make_fragment(index, FAILED, [node], end=after(-1), **fields)


def test_the_first_deaths_are_counted_once_a_tick_whatever_their_age() -> None:
    job = make_job(dead(0, start=after(-90_000)), dead(1, "n2", failures=1))
    found = marks(care_for(job).actions)
    assert {mark.failures for mark in found.values()} == {2}
    assert all(mark.noticed == NOW for mark in found.values())
    assert [g.node for g in found[0].deaths] == ["n1"]


def test_the_third_death_stops_the_job() -> None:
    starting = make_fragment(1, RUNNING, ["n2"], said=Said.NOTHING)
    care = care_for(make_job(dead(0, failures=2), starting, held=2))
    assert care.is_over
    found = marks(care.actions)
    assert len(found) == 4
    assert all(mark.stopped == "failed-3-times:exit-1:0-on-n1" for mark in found.values())
    finished = [f.index for a in care.actions if isinstance(a, Cancel) for f in a.fragments]
    assert finished == [0, 1, 2, 3]


def test_a_stopped_job_stays_stopped() -> None:
    job = make_job(make_fragment(0, CANCELLED, stopped="why"), held=1)
    care = care_for(job)
    assert care.is_over
    assert [type(a) for a in care.actions] == [Cancel]
    assert "stopped: why" in care.reasons


def test_where_others_train_on_the_node_is_blamed() -> None:
    job = make_job(dead(0, failures=2), make_fragment(1, RUNNING, ["n2"], said=Said.TRAINED))
    care = care_for(job)
    assert not care.is_over
    mark = marks(care.actions)[0]
    assert [g.node for g in mark.deaths] == ["n1"]
    assert mark.failures == 2  # not counted; forgiven once it is back


def test_a_peer_that_has_only_joined_is_no_excuse() -> None:
    """Else fragments that die in turn would excuse each other for ever."""
    job = make_job(dead(0, failures=2), make_fragment(1, RUNNING, ["n2"], said=Said.JOINED))
    assert care_for(job).is_over


@pytest.mark.parametrize(("code", "is_ours"), [("0:15", True), ("3:0", True), ("0:0", False)])
def test_what_a_dead_tick_left_is_told_from_an_operator_s_hold(code: str, is_ours: bool) -> None:
    ran = {"released": after(-300), "restarts": 1, "reason": "JobHeldAdmin", "exit_code": code}
    care = care_for(make_job(make_fragment(0, HELD, **ran), held=1))
    assert any(isinstance(a, Hold) for a in care.actions) is is_ours


def test_a_failed_node_is_no_failure_of_the_script() -> None:
    care = care_for(make_job(make_fragment(0, LOST, ["n1"], failures=2)))
    assert not care.is_over
    assert marks(care.actions)[0].failures == 2


def test_progress_forgives() -> None:
    job = make_job(
        make_fragment(0, RUNNING, ["n2"], failures=2, said=Said.TRAINED),
        make_fragment(1, failures=1),
        make_fragment(2),
    )
    found = marks(care_for(job).actions)
    assert {index: mark.failures for index, mark in found.items()} == {0: 0, 1: 0}


@pytest.mark.parametrize(("left_s", "forgiven"), [(-100, True), (-300, False)])
def test_progress_of_a_run_that_ended_forgives_what_failed_before_it(
    left_s: float, forgiven: bool
) -> None:
    left = make_fragment(0, HELD, said=Said.TRAINED, eligible=after(left_s + 120))
    job = make_job(left, make_fragment(1, failures=2, deaths=(AvoidedNode("n9", after(-200)),)))
    assert (1 in marks(care_for(job).actions)) is forgiven


def test_age_does_not_forgive() -> None:
    job = make_job(make_fragment(0, RUNNING, ["n2"], failures=2, start=after(-90_000)))
    assert care_for(job).actions == ()


# -- what can grow


def test_what_arrives_and_what_can_grow() -> None:
    job = make_job(
        make_fragment(0, PENDING, ["n1"], released=after(-5)),
        make_fragment(1, DONE, ["n3"], noticed=after(-3)),
        make_fragment(2, HELD, reason="JobHeldAdmin"),
        held=2,
    )
    care = care_for(job)
    assert [f.id.index for f in care.arriving] == [0]
    assert [f.id.index for f in care.growable] == [3, 4]
    assert any("malleable release 7" in reason for reason in care.reasons)


def test_nothing_grows_before_a_dependency_is_met() -> None:
    job = make_job(make_fragment(0, HELD, depends=True), held=1)
    assert care_for(job).growable == ()
    assert "waits for its dependency" in care_for(job).reasons


@pytest.mark.parametrize(
    ("vain", "ago_s", "can_grow"),
    [(0, 1, True), (1, 29, False), (1, 30, True), (2, 59, False), (2, 60, True), (99, 3601, True)],
)
def test_the_pause_after_a_release_in_vain_doubles(vain: int, ago_s: float, can_grow: bool) -> None:
    job = make_job(make_fragment(0, HELD, vain=vain, released=after(-ago_s)), held=1)
    assert bool(care_for(job).growable) is can_grow


def test_a_release_in_vain_is_remembered_with_slurm_s_reason() -> None:
    job = make_job(
        make_fragment(0, PENDING, ["n1"], released=after(-5), reason="JobArrayTaskLimit")
    )
    mark = marks(care_for(job).actions)[0]
    assert (mark.vain, mark.obstacle, mark.released) == (1, "JobArrayTaskLimit", NOW)


def test_a_start_ends_the_pauses() -> None:
    job = make_job(make_fragment(0, RUNNING, ["n1"], vain=3, obstacle="Licenses"))
    assert marks(care_for(job).actions)[0].vain == 0


def test_the_priority_is_remembered_before_the_hold_erases_it() -> None:
    job = make_job(make_fragment(0, RUNNING, ["n1"], priority=70), held=1)
    assert marks(care_for(job).actions)[0].priority == 70
    assert job.priority == 70


def test_notice_is_repeated_with_the_first_time() -> None:
    fragment = make_fragment(0, RUNNING, ["n1"], noticed=after(-7))
    (action,) = care_for(make_job(fragment)).actions
    assert isinstance(action, Notice)
    assert action.mark == make_mark(noticed=after(-7))


@pytest.mark.parametrize(
    ("fields", "rested"),
    [
        ({}, True),
        ({"eligible": after(120)}, False),  # requeued this second
        ({"eligible": after(118)}, False),
        ({"eligible": after(117)}, True),
        ({"eligible": after(-5)}, True),
        ({"eligible": after(3600)}, True),  # slurmctld's clock was set back
        ({"noticed": after(-2)}, False),  # found dead two seconds ago
        ({"noticed": after(-3)}, True),
        ({"noticed": after(3000)}, True),
    ],
)
def test_a_fragment_rests_before_it_runs_again(fields: dict[str, Any], rested: bool) -> None:
    """A node refuses the credential of a job that ended there in this second."""
    job = make_job(make_fragment(0, HELD, **fields))
    assert bool(care_for(job).growable) is rested


def test_the_rest_follows_slurm_s_own_wait() -> None:
    job = make_job(make_fragment(0, HELD, eligible=after(300)))
    assert care_for(job).growable
    slow = make_slurm(requeue_wait=after(300) - NOW)
    assert not upkeep(job, NOW, SETTINGS, slow).growable


def test_holds_are_only_for_what_could_come_back_unheld() -> None:
    job = make_job(
        make_fragment(0, RUNNING, ["n1"]), make_fragment(1, RUNNING, ["n2"], priority=5), held=1
    )
    held = [a.fragment.index for a in care_for(job).actions if isinstance(a, Hold)]
    assert held == [1]
