"""The plan is checked against a second reading between the two halves of a tick's writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from build import (
    NOW,
    after,
    make_fragment,
    make_job,
    make_mark,
    make_request,
    make_snapshot,
)
from fake_parts import Rigid
from fake_slurm import FakeSlurm
from planning.whole_ticks import settings_in
from slurm_hooks.model import (
    Fragment,
    FragmentId,
    FragmentState,
    IdleNodes,
    Intent,
    JobPlan,
    Off,
    Plan,
    Verb,
    Why,
)
from slurm_hooks.planning.check import Half, check
from slurm_hooks.report.why import note_text
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick.reconcile import tick

ID = FragmentId(7, 0)
MARK = make_mark(noticed=NOW)
NOTICE = Intent(ID, Why.HOLE_CLOSES, Verb.NOTICE, mark=MARK)
AWAY = Intent(ID, Why.NOTICE_OVER, Verb.PUT_BACK)
BACK = Intent(ID, Why.LEASE_ENDED, Verb.PUT_BACK, mark=MARK, is_held=True, is_ended=True)
HOLD = Intent(ID, Why.SECURED, is_held=True)
GROW = Intent(
    ID, Why.HOLE_OPEN, Verb.GROW, mark=MARK, nodes=frozenset({"n1"}), limit=after(60) - NOW
)
RUNNING, ENDED = FragmentState.RUNNING, FragmentState.TIMED_OUT


def looked_at_again(plan: Plan, *fresh: Fragment, **switches: Off) -> Plan:
    """The plan after a second reading that has these fragments of the job."""
    now = make_snapshot(*([make_job(*fresh)] if fresh else []), **switches)
    return check(plan, Half.SECOND, make_snapshot(make_job(held=4)), now, Settings())


def is_kept(action: Intent, *fresh: Fragment) -> bool:
    kept = looked_at_again(Plan((action,)), *fresh)
    assert bool(kept.actions) != bool(kept.notes)
    return bool(kept.actions)


def test_actions_without_a_fault_go_on_without_the_faulty_actions() -> None:
    """An operator's hold stays, and a lease that was cut is cut."""
    both = replace(NOTICE, is_held=True, end=after(60))
    paused = make_fragment(0, RUNNING, ["n1"], reason="JobHeldAdmin", noticed=NOW)
    unmarked = make_fragment(0, RUNNING, ["n1"], priority=5)
    assert left_of(both, paused) == (replace(both, is_held=False),)
    assert left_of(both, unmarked) == (replace(HOLD, cause=both.cause, end=both.end),)
    stopped = replace(BACK, verb=Verb.CANCEL, cause=Why.STOPPED)
    gone = make_fragment(0, FragmentState.HELD)
    assert left_of(stopped, gone) == (Intent(ID, Why.STOPPED, Verb.CANCEL),)


def left_of(intent: Intent, *fresh: Fragment) -> tuple[Intent, ...]:
    kept = looked_at_again(Plan((intent,)), *fresh)
    assert len(kept.notes) == 1
    return kept.actions


def test_leases_and_marks_come_first_and_the_rest_later() -> None:
    notice = replace(NOTICE, is_held=True, end=after(60))
    late = [replace(each, fragment=FragmentId(7, 1)) for each in (GROW, BACK)]
    cancel = Intent(ID, Why.FINISHED, Verb.CANCEL)
    for each in late:
        first = Intent(ID, Why.HOLE_CLOSES, mark=MARK, end=after(60))
        assert Half.FIRST.of((notice, each)) == (first,)
        assert Half.SECOND.of((notice, each)) == (replace(notice, mark=None, end=None), each)
    assert (Half.FIRST.of((cancel,)), Half.SECOND.of((cancel,))) == ((), (cancel,))
    for each in (NOTICE, HOLD, GROW, AWAY, replace(cancel, is_ended=True)):
        assert Half.SECOND.needs_check((each,))
    assert not any(Half.SECOND.needs_check((each,)) for each in (cancel, *Half.FIRST.of((notice,))))


@pytest.mark.parametrize(
    ("fresh", "wanted"),
    [
        (make_fragment(0), True),
        (make_fragment(0, reason="JobHeldAdmin"), False),
        (make_fragment(0, is_on_hold=True), False),
        (make_fragment(0, RUNNING, ["n1"]), False),
    ],
)
def test_a_fragment_that_an_operator_has_just_held_is_not_released(
    fresh: Fragment, wanted: bool
) -> None:
    assert is_kept(GROW, fresh) is wanted


def test_our_hold_does_not_replace_an_operator_s() -> None:
    """Slurm would show it as the user's from then on."""
    assert is_kept(HOLD, make_fragment(0, RUNNING, ["n1"], priority=5))
    assert not is_kept(HOLD, make_fragment(0, RUNNING, ["n1"], reason="JobHeldAdmin"))


@pytest.mark.parametrize("cause", [Why.DIED, Why.NOTED])
def test_a_fragment_that_slurm_itself_holds_is_held_as_ours(cause: Why) -> None:
    """After RequeueExit, and after a requeue of a held fragment that failed, it would never
    run again.
    """
    assert is_kept(replace(HOLD, cause=cause), make_fragment(0, reason="JobHeldAdmin"))


@pytest.mark.parametrize(
    ("fresh", "wanted"),
    [
        (make_fragment(0, RUNNING, ["n1"], noticed=NOW), True),
        (make_fragment(0, RUNNING, ["n1"]), False),  # its mark was refused
        (make_fragment(0, FragmentState.HELD, noticed=NOW), False),
    ],
)
def test_only_marked_fragments_are_signalled(fresh: Fragment, wanted: bool) -> None:
    assert is_kept(NOTICE, fresh) is wanted


@pytest.mark.parametrize("action", [NOTICE, AWAY, BACK])
def test_a_fragment_that_is_gone_is_left_alone(action: Intent) -> None:
    assert not is_kept(action)


@pytest.mark.parametrize(
    ("action", "state", "wanted"),
    [
        (AWAY, RUNNING, True),
        (AWAY, FragmentState.ENDING, False),  # cancelled, for all we know
        (AWAY, FragmentState.HELD, False),
        (BACK, ENDED, True),
        (BACK, FragmentState.CANCELLED, False),
        (BACK, FragmentState.PENDING, False),  # its user was faster
    ],
)
def test_only_an_unchanged_fragment_is_put_back(
    action: Intent, state: FragmentState, wanted: bool
) -> None:
    others = make_fragment(1, FragmentState.RUNNING, ["n2"])
    assert is_kept(action, make_fragment(0, state, ["n1"]), others) is wanted


def test_no_fragment_of_a_cancelled_job_is_put_back() -> None:
    fresh = make_fragment(0, ENDED, ["n1"])
    assert not is_kept(BACK, fresh, make_fragment(1, FragmentState.CANCELLED))


def after_a_second_look(action: Intent, *fresh: Fragment, **switches: Off) -> Plan:
    idle = (IdleNodes(Why.STARTING, 1),)
    plan = Plan((action,), (JobPlan(7, 1, 1),), idle=idle, starting=action.nodes)
    return looked_at_again(plan, *fresh, **switches)


def test_a_job_whose_notice_slurm_refused_keeps_its_node() -> None:
    plan = after_a_second_look(NOTICE, make_fragment(0, RUNNING, ["n1"]))
    assert [job.nodes_planned for job in plan.jobs] == [2]


@pytest.mark.parametrize(
    ("is_on_hold", "switches", "idle"),
    [
        (True, {}, Why.RESTING),
        (False, {"off": Off(NOW)}, Why.OFF),
        (False, {"no_growth": Off(NOW)}, Why.NO_GROWTH),
        (False, {"off": Off(NOW), "no_growth": Off(NOW)}, Why.OFF),
    ],
)
def test_a_node_that_is_not_given_after_all_is_idle_for_that_reason(
    is_on_hold: bool, switches: dict[str, Off], idle: Why
) -> None:
    plan = after_a_second_look(GROW, make_fragment(0, is_on_hold=is_on_hold), **switches)
    assert plan.idle == (IdleNodes(idle, 1),)
    assert [job.nodes_planned for job in plan.jobs] == [0]


@pytest.mark.parametrize(("min_nodes", "starts"), [(3, 0), (2, 2)])
def test_a_gang_does_not_start_below_its_minimum_if_a_fragment_may_not(
    min_nodes: int, starts: int
) -> None:
    grows = [replace(GROW, fragment=FragmentId(7, i), nodes=frozenset({f"n{i}"})) for i in range(3)]
    request = make_request(min_nodes)
    fresh = [make_fragment(i, request=request, is_on_hold=i == 1) for i in range(3)]
    plan = looked_at_again(Plan(tuple(grows)), *fresh)
    assert len([i for i in plan.actions if i.verb is Verb.GROW]) == starts


@pytest.mark.parametrize(("died", "starts"), [(0, 1), (1, 0)])
def test_a_gang_that_has_become_smaller_does_not_start_below_its_minimum(
    died: int, starts: int
) -> None:
    """Two run and one is to start, of at least three. Then one of the two dies."""
    request = make_request(3)
    grow = replace(GROW, fragment=FragmentId(7, 2))
    runs = [make_fragment(i, RUNNING, [f"n{i}"], request=request) for i in (0, 1)]
    held = make_fragment(2, request=request)
    dead = [make_fragment(i, FragmentState.FAILED, request=request) for i in range(died)]
    seen = make_snapshot(make_job(*runs, held))
    fresh = make_snapshot(make_job(*dead, *runs[died:], held))
    plan = check(Plan((grow,)), Half.SECOND, seen, fresh, Settings())
    assert len(plan.actions) == starts
    assert all("has become smaller" in note_text(note) for note in plan.notes)


@pytest.mark.parametrize(("begins_in_s", "starts"), [(40, 0), (3600, 2)])
def test_no_fragment_starts_in_a_hole_that_a_planned_start_has_closed_since(
    begins_in_s: int, starts: int, tmp_path: Path
) -> None:
    """Slurm publishes the start in another partition, after the first reading of the jobs."""
    slurm = FakeSlurm({"n1": "", "n2": ""})
    slurm.submit(7, 2, "malleable{min=2,max=2,unit=1,frags=2,lease=600,hole=120}")
    wide = Rigid(9, frozenset({"n1"}), slurm.now + 1, slurm.now + begins_in_s, 600)
    slurm.rigid.append(wide)

    def publish(command: Command) -> None:
        if command.stdin.startswith("show"):
            wide.seen = slurm.now

    slurm.before = publish
    report = tick(slurm, settings_in(tmp_path))
    slurm.advance(5)
    assert len([e for e in slurm.of(7) if e.state == "RUNNING"]) == starts
    assert [job.nodes_planned for job in report.plan.jobs] == [starts]


def test_text_that_an_operator_writes_during_a_tick_survives_a_start(tmp_path: Path) -> None:
    slurm = FakeSlurm({"n1": "", "n2": ""})
    slurm.submit(7, 2, "malleable{min=2,max=2,unit=1,frags=2,lease=600,hole=120}")

    def write(command: Command) -> None:
        if command.stdin.startswith("show"):
            mark = slurm.elements["7_1"].admin_comment
            slurm.elements["7_1"].admin_comment = f"{mark.split(' ')[0]} ticket-12"

    slurm.before = write
    tick(slurm, settings_in(tmp_path))
    slurm.advance(5)
    assert {e.state for e in slurm.of(7)} == {"RUNNING"}
    assert slurm.elements["7_1"].admin_comment.endswith("ticket-12")
