"""A core: fragments that wait in the ordinary queue, beside others that live in holes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest

from build import (
    after,
    make_fragment,
    make_job,
    make_mark,
    make_node,
    make_nodes,
    make_request,
    make_slurm,
    make_snapshot,
    no_clock,
    reserve,
    span,
)
from slurm_hooks.model import (
    Fragment,
    FragmentState,
    Intent,
    MalleableJob,
    NodeState,
    Off,
    Plan,
    PlannedStart,
    Request,
    Said,
    Slot,
    Snapshot,
    Verb,
    Why,
    Wish,
)
from slurm_hooks.planning.check import Half, check
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.report.why import reason_text
from slurm_hooks.settings.values import Mode, Settings, Site

HELD, PENDING = FragmentState.HELD, FragmentState.PENDING
RUNNING, TIMED_OUT = FragmentState.RUNNING, FragmentState.TIMED_OUT


def asking(low: int = 1, high: int = 4, core: int = 1, **fields: Any) -> Request:
    request = replace(make_request(low, high), core=core, lane="malleable", **fields)
    return replace(request, fragments=high)


def core_of(
    request: Request, index: int = 0, state: FragmentState = HELD, **fields: Any
) -> Fragment:
    nodes = fields.pop("nodes", (f"n{index + 1}",) if state is RUNNING else ())
    if state is RUNNING:
        fields.setdefault("priority", 100)
        fields.setdefault("end", after(7200))
    return make_fragment(index, state, nodes, request=request, lane="main", **fields)


def in_lane(request: Request, index: int, state: FragmentState = HELD, **fields: Any) -> Fragment:
    nodes = (f"n{index + 1}",) if state is RUNNING else ()
    return make_fragment(index, state, nodes, request=request, lane="malleable", **fields)


def planned(*fragments: Fragment, settings: Optional[Settings] = None, **seen: Any) -> Plan:
    return plan_of(job_of(*fragments), settings, **seen)


def job_of(*fragments: Fragment) -> MalleableJob:
    return make_job(*fragments, request=fragments[0].mark.request)


def snapshot_of(job: MalleableJob, **seen: Any) -> Snapshot:
    busy = {name for f in job.fragments if f.state is RUNNING for name in f.nodes}
    nodes = seen.pop("nodes", make_nodes(4))
    free = NodeState.FREE
    states = (NodeState.BUSY if n.name in busy and n.state is free else n.state for n in nodes)
    in_states = tuple(replace(n, state=state) for n, state in zip(nodes, states))
    return make_snapshot(job, nodes=in_states, **seen)


def plan_of(job: MalleableJob, settings: Optional[Settings] = None, **seen: Any) -> Plan:
    return make_plan(snapshot_of(job, **seen), settings or Settings(mode=Mode("on")), no_clock)


def by_verb(plan: Plan, verb: Verb) -> list[int]:
    return sorted(i.fragment.index for i in plan.actions if i.verb is verb)


def moves(plan: Plan) -> list[Intent]:
    return [i for i in plan.actions if i.is_moved]


def untouched(plan: Plan) -> bool:
    """Tell whether the plan writes only marks to the core."""
    mine = (i for i in plan.actions if i.fragment.index == 0)
    return all(i.parts == ("set mark",) for i in mine)


def texts(plan: Plan) -> list[str]:
    return [reason_text(reason) for reason in plan.jobs[0].reasons]


def test_a_new_job_queues_its_core_and_moves_the_others_to_the_lane() -> None:
    request = asking(core=2)
    plan = planned(*(core_of(request, i) for i in range(4)))
    assert by_verb(plan, Verb.QUEUE) == [0, 1]
    assert [i.fragment.index for i in moves(plan)] == [2, 3]
    assert {(i.lane, i.limit) for i in moves(plan)} == {("malleable", request.lease)}
    assert by_verb(plan, Verb.GROW) == []


def test_a_move_takes_the_qos_and_the_account_of_the_site() -> None:
    settings = Settings(site=Site(qos="scavenge", account="idle"))
    plan = planned(*(core_of(asking(), i) for i in range(4)), settings=settings)
    assert {(i.qos, i.account) for i in moves(plan)} == {("scavenge", "idle")}


@pytest.mark.parametrize("denied", [frozenset(), frozenset({7})])
def test_where_qos_decide_a_core_may_wait_in_the_lane(denied: frozenset[int]) -> None:
    settings = Settings(mode=Mode("on"), site=Site(qos="scavenge", account="idle"))
    request = asking(core=2)
    others = (in_lane(request, i) for i in range(2, 4))
    waiting = (replace(core_of(request, i), lane="malleable") for i in range(2))
    slurm = replace(make_slurm(), preempts_by_qos=True)
    plan = planned(*waiting, *others, settings=settings, slurm=slurm, without_qos=denied)
    grows = [i for i in plan.actions if i.verb is Verb.GROW]
    assert by_verb(plan, Verb.QUEUE) == [0, 1]
    assert [i.fragment.index for i in grows] == ([] if denied else [2, 3])
    assert {(i.qos, i.account) for i in grows} <= {("scavenge", "idle")}
    assert all(i.mark and i.mark.qos == "scavenge" for i in grows)
    by_hand = replace(in_lane(request, 2, RUNNING), mark=make_mark(request))
    core = core_of(request, state=RUNNING)
    # The move to the lane gave it the QOS, which the mark has only since a tick released it.
    plan = planned(core, by_hand, settings=settings, slurm=slurm)
    assert by_verb(plan, Verb.NOTICE) == []
    core = replace(core, lane="malleable")
    plan = planned(core, by_hand, settings=settings, slurm=slurm)
    (leaves,) = (i for i in plan.actions if i.verb is Verb.NOTICE)
    assert (leaves.fragment.index, leaves.cause) == (2, Why.TO_LANE)


def test_no_fragment_gets_a_qos_that_its_user_may_not_have() -> None:
    settings = Settings(site=Site(qos="scavenge"))
    cores = [core_of(asking(), i) for i in range(4)]
    plan = planned(*cores, settings=settings, without_qos=frozenset({7}))
    assert (moves(plan), by_verb(plan, Verb.QUEUE)) == ([], [0])
    assert texts(plan)[0] == (
        "on idle nodes its fragments need QOS scavenge, which nobody may not use; an administrator "
        "can run sacctmgr modify user nobody set qos+=scavenge"
    )


def test_where_qos_decide_no_part_of_a_node_gets_such_a_qos_either() -> None:
    settings = Settings(mode=Mode("on"), site=Site(qos="scavenge", part_nodes="low"))
    request = asking(core=0, slot=Slot("gpu"))
    slurm = replace(make_slurm(), preempts_by_qos=True)
    waiting = [in_lane(request, i) for i in range(2)]
    nodes = [replace(node, gres=(("gpu", 4),)) for node in make_nodes(2)]
    seen = {"nodes": nodes, "slurm": slurm, "settings": settings}
    assert by_verb(planned(*waiting, **seen), Verb.GROW)
    plan = planned(*waiting, **seen, without_qos=frozenset({7}))
    assert by_verb(plan, Verb.GROW) == []
    assert texts(plan)[0].startswith("on idle nodes its fragments need QOS scavenge,low, which")


def test_fragments_in_the_lane_start_in_holes_while_the_core_waits() -> None:
    request = asking()
    waiting = core_of(request, state=PENDING, reason="Priority", start=after(3600))
    plan = planned(waiting, *(in_lane(request, i) for i in (1, 2, 3)))
    assert by_verb(plan, Verb.GROW) == [1, 2, 3]
    assert plan.jobs[0].nodes_planned == 3
    assert untouched(plan)


def test_no_fragment_starts_outside_the_lane() -> None:
    request = asking()
    astray = core_of(request, index=2)
    plan = planned(
        core_of(request, state=PENDING), in_lane(request, 1), astray, in_lane(request, 3)
    )
    assert by_verb(plan, Verb.GROW) == [1, 3]
    assert [i.fragment.index for i in moves(plan)] == [2]


def test_a_fragment_outside_the_lane_leaves_and_is_not_renewed() -> None:
    """An operator's release of the whole job starts all its elements in the user's partition."""
    request = asking()
    astray = core_of(request, 1, RUNNING, end=after(100))
    plan = planned(core_of(request, state=RUNNING), astray, core_of(request, 2, PENDING))
    asked, held = (next(i for i in plan.actions if i.fragment.index == n) for n in (1, 2))
    assert (asked.verb, asked.cause, asked.end) == (Verb.NOTICE, Why.TO_LANE, None)
    assert (held.verb, held.cause, held.is_held) == (Verb.STAY, Why.TO_LANE, True)
    assert untouched(plan)


def test_a_core_counts_for_the_minimum() -> None:
    request = asking(low=3, core=2)
    cores = [core_of(request, i, RUNNING) for i in (0, 1)]
    plan = planned(*cores, in_lane(request, 2), in_lane(request, 3), nodes=make_nodes(3))
    assert by_verb(plan, Verb.GROW) == [2]
    assert plan.jobs[0].nodes_planned == 3


def test_a_waiting_core_does_not_count() -> None:
    request = asking(low=3, core=2)
    cores = [core_of(request, i, PENDING) for i in (0, 1)]
    plan = planned(*cores, in_lane(request, 2), in_lane(request, 3))
    assert by_verb(plan, Verb.GROW) == []


def test_the_second_reading_counts_no_core_that_waits() -> None:
    request = asking(low=2, core=1)
    job = job_of(core_of(request, state=PENDING), *(in_lane(request, i) for i in (1, 2, 3)))
    seen = snapshot_of(job, nodes=make_nodes(2))
    plan = make_plan(seen, Settings(mode=Mode("on")), no_clock)
    assert len(by_verb(plan, Verb.GROW)) == 2
    nodes = (replace(seen.nodes[0], state=NodeState.BUSY), seen.nodes[1])
    assert (
        by_verb(
            check(plan, Half.FIRST, seen, replace(seen, nodes=nodes), Settings(mode=Mode("on"))),
            Verb.GROW,
        )
        == []
    )


SOON = PlannedStart("90", after(40), frozenset({"n1", "n2"}))


@pytest.mark.parametrize(
    "seen",
    [
        {"planned": (SOON,)},
        {"reservations": (reserve(["n1", "n2"], 40),)},
        {"off": Off(after(-1))},
        {"nodes": (make_node("n1", NodeState.LEAVING), make_node("n2", NodeState.LEAVING))},
    ],
)
def test_the_core_stays_for_any_reason_that_makes_others_leave(seen: dict[str, Any]) -> None:
    request = asking()
    others = (
        in_lane(request, 1, RUNNING, said=Said.TRAINED),
        in_lane(request, 2),
        in_lane(request, 3),
    )
    settings = Settings(mode=Mode("on"))
    settings = replace(settings, plan=replace(settings.plan, loss_s=1e6))
    plan = planned(core_of(request, state=RUNNING), *others, settings=settings, **seen)
    assert by_verb(plan, Verb.NOTICE) == [1]
    assert untouched(plan)


def test_a_core_keeps_its_limit_and_is_not_held() -> None:
    request = asking()
    core = core_of(request, state=RUNNING, end=after(864_000), priority=0)
    plan = planned(core, *(in_lane(request, i) for i in (1, 2, 3)))
    assert untouched(plan)


def test_a_ceiling_counts_no_core() -> None:
    request = asking()
    settings = Settings(mode=Mode(max_nodes=2))
    held = [in_lane(request, i) for i in (1, 2, 3)]
    plan = planned(core_of(request, state=RUNNING), *held, settings=settings)
    assert by_verb(plan, Verb.GROW) == [1, 2]
    running = [in_lane(request, i, RUNNING) for i in (1, 2, 3)]
    plan = planned(core_of(request, state=RUNNING), *running, settings=settings)
    assert len(by_verb(plan, Verb.NOTICE)) == 1


def test_no_core_is_queued_while_malleable_jobs_are_off() -> None:
    plan = planned(*(core_of(asking(), i) for i in range(4)), off=Off(after(-1)))
    assert by_verb(plan, Verb.QUEUE) == []


def test_a_core_whose_time_is_over_goes_on_in_holes() -> None:
    request = asking()
    others = [in_lane(request, i, RUNNING) for i in (1, 2, 3)]
    ended = core_of(request, state=TIMED_OUT, nodes=("n1",))
    plan = planned(ended, *others)
    (back,) = (i for i in plan.actions if i.verb is Verb.PUT_BACK)
    assert back.is_ended
    assert back.is_held
    assert back.mark is not None
    assert back.mark.is_spent
    spent = replace(core_of(request), mark=replace(back.mark, noticed=after(-100)))
    plan = planned(spent, *others)
    assert by_verb(plan, Verb.QUEUE) == []
    assert [i.fragment.index for i in moves(plan)] == [0]
    plan = planned(replace(spent, lane="malleable"), *others)
    assert by_verb(plan, Verb.GROW) == [0]


def back_by_itself(after_s: int, **fields: Any) -> Fragment:
    """A core with two hours of time. Its agent has put it back so long after its start."""
    said, end = Said.LEAVING, after(-10)
    released, eligible = end - span(after_s), end + make_slurm().requeue_wait
    fields = {"said": said, "released": released, "restarts": 1, "limit": span(7200), **fields}
    return core_of(asking(), eligible=eligible, **fields)


@pytest.mark.parametrize(("state", "is_held"), [(HELD, False), (PENDING, True)])
def test_a_core_that_leaves_at_the_end_of_its_time_is_over(
    state: FragmentState, is_held: bool
) -> None:
    others = [in_lane(asking(), i, RUNNING) for i in (1, 2, 3)]
    plan = planned(back_by_itself(7180, state=state), *others)
    (spent,) = (i for i in plan.actions if i.fragment.index == 0)
    assert (spent.verb, spent.cause, spent.is_held) == (Verb.STAY, Why.CORE_OVER, is_held)
    assert spent.mark is not None
    assert spent.mark.is_spent


def test_a_core_that_was_put_back_before_its_time_is_queued_again() -> None:
    others = [in_lane(asking(), i, RUNNING) for i in (1, 2, 3)]
    assert by_verb(planned(back_by_itself(3600), *others), Verb.QUEUE) == [0]


def test_a_core_notes_when_it_started() -> None:
    """Otherwise its waiting time would count as its run time."""
    request = asking()
    seen = {"start": after(-200), "released": after(-7000), "restarts": 1}
    core = core_of(request, state=RUNNING, noticed=after(-250), **seen)  # it died, and was not held
    others = [in_lane(request, i) for i in (1, 2, 3)]
    plan = planned(core, *others)
    (noted,) = (i for i in plan.actions if i.fragment.index == 0)
    assert noted.parts == ("set mark",)
    assert noted.mark is not None
    assert (noted.mark.released, noted.mark.run, noted.mark.noticed) == (core.start, 1, None)
    plan = planned(replace(core, mark=noted.mark), *others)
    assert [i for i in plan.actions if i.fragment.index == 0] == []


def test_a_job_may_end_with_its_core() -> None:
    request = asking(core=2, ends_all=True)
    spent = [core_of(request, i, is_spent=True) for i in (0, 1)]
    running = in_lane(request, 2, RUNNING)
    plan = planned(spent[0], core_of(request, 1, RUNNING), running, in_lane(request, 3))
    assert by_verb(plan, Verb.CANCEL) == []
    plan = planned(*spent, running, in_lane(request, 3))
    assert by_verb(plan, Verb.CANCEL) == [0, 1, 2, 3]
    assert [r.why for r in plan.jobs[0].reasons] == [Why.CORE_OVER]
    gone = [core_of(request, i, FragmentState.CANCELLED, is_spent=True) for i in (0, 1)]
    plan = planned(*gone, *(in_lane(request, i, FragmentState.CANCELLED) for i in (2, 3)))
    assert [r.why for r in plan.jobs[0].reasons] == [Why.CORE_OVER]


def test_a_core_that_died_is_queued_again() -> None:
    request = asking()
    others = [in_lane(request, i) for i in (1, 2, 3)]
    dead = core_of(request, state=FragmentState.FAILED, nodes=("n1",), exit_code="1:0")
    plan = planned(dead, *others)
    (back,) = (i for i in plan.actions if i.verb is Verb.PUT_BACK)
    assert back.mark is not None
    assert back.mark.failures == 1
    assert not back.mark.is_spent
    held = replace(core_of(request), mark=replace(back.mark, noticed=after(-60)), restarts=1)
    assert by_verb(planned(held, *others), Verb.QUEUE) == [0]


@pytest.mark.parametrize("state", [HELD, PENDING])
def test_a_core_that_slurm_put_back_after_a_failure_is_not_queued_at_once(
    state: FragmentState,
) -> None:
    """Its failure is on record before its next run."""
    request = asking()
    dead = core_of(request, state=state, released=after(-900), restarts=1, exit_code="1:0")
    plan = planned(dead, *(in_lane(request, i) for i in (1, 2, 3)))
    (died,) = (i for i in plan.actions if i.fragment.index == 0)
    assert (died.verb, died.is_held) == (Verb.STAY, True)
    assert died.mark is not None
    assert died.mark.failures == 1


def test_slurm_puts_a_preempted_core_back_itself() -> None:
    request = asking()
    waiting = core_of(request, state=PENDING, eligible=after(100), restarts=1, reason="BeginTime")
    plan = planned(waiting, *(in_lane(request, i) for i in (1, 2, 3)))
    assert untouched(plan)


def test_an_operator_s_hold_keeps_a_core_out_of_the_queue() -> None:
    request = asking()
    held = core_of(request, reason="JobHeldAdmin")
    assert by_verb(planned(held, *(in_lane(request, i) for i in (1, 2, 3))), Verb.QUEUE) == []


def test_a_core_that_no_node_can_start_is_queued_again_ever_later() -> None:
    request, reason = asking(), "launch failed requeued held"
    others = [in_lane(request, i) for i in (1, 2, 3)]
    failed = core_of(request, released=after(-9), reason=reason, restarts=1)
    (queued,) = (i for i in planned(failed, *others).actions if i.verb is Verb.QUEUE)
    assert queued.mark
    assert (queued.mark.vain, queued.mark.run) == (1, 1)
    again = {"reason": reason, "restarts": 2, "run": 1, "obstacle": "LaunchFailed", "vain": 2}
    assert (
        by_verb(planned(core_of(request, released=after(-29), **again), *others), Verb.QUEUE) == []
    )
    late = core_of(request, released=after(-30), **again)
    assert by_verb(planned(late, *others), Verb.QUEUE) == [0]


def test_a_core_that_fits_no_node_is_tried_again_after_long() -> None:
    """Slurm holds a job that asks for more than any node of its partition has."""
    request = asking()
    others = [in_lane(request, i) for i in (1, 2, 3)]
    unfit = core_of(request, released=after(-60), reason="BadConstraints")
    plan = planned(unfit, *others)
    assert by_verb(plan, Verb.QUEUE) == []
    assert texts(plan)[0] == (
        "its core cannot start; no node of its partition fits the request of fragment 7_0 "
        "(BadConstraints)"
    )
    long_ago = core_of(request, released=after(-4000), reason="BadConstraints")
    assert by_verb(planned(long_ago, *others), Verb.QUEUE) == [0]


def test_explain_says_where_the_core_stands() -> None:
    request = asking()
    others = [in_lane(request, i) for i in (1, 2, 3)]
    waiting = core_of(request, state=PENDING, reason="Priority", start=after(3600))
    assert texts(planned(waiting, *others))[0] == (
        "its core waits in the ordinary queue (Priority); it is fragment 7_0, which Slurm expects "
        "to start at 2026-03-01 13:00:00 UTC"
    )
    running = core_of(request, state=RUNNING)
    assert texts(planned(running, *others))[0] == (
        "its core has 1 node on n1 until 2026-03-01 14:00:00 UTC"
    )


def test_a_node_with_two_fragments_of_a_core_is_named_once() -> None:
    request = asking(core=2)
    plan = planned(*(core_of(request, i, RUNNING, nodes=("n1",)) for i in (0, 1)))
    (detail,) = (reason.detail for reason in plan.jobs[0].reasons if reason.why is Why.CORE)
    assert (detail["nodes"], detail["count"]) == (("n1",), 2)


def test_growth_beside_a_core_costs_a_pause_of_the_core_too() -> None:
    request = asking(high=2)
    core = core_of(request, state=RUNNING, said=Said.TRAINED)
    soon = (PlannedStart("90", after(240), frozenset({"n2"})),)
    settings = Settings(mode=Mode("on"))
    dear = replace(settings, plan=replace(settings.plan, grow_s=130, loss_s=1e6))
    plan = planned(core, in_lane(request, 1), settings=dear, nodes=make_nodes(2), planned=soon)
    assert by_verb(plan, Verb.GROW) == []
    cheap = replace(settings, plan=replace(settings.plan, grow_s=1, loss_s=1e6))
    plan = planned(core, in_lane(request, 1), settings=cheap, nodes=make_nodes(2), planned=soon)
    assert by_verb(plan, Verb.GROW) == [1]


def leavers(*fragments: Fragment, **seen: Any) -> dict[int, Why]:
    plan = planned(*fragments, **seen)
    return {i.fragment.index: i.cause for i in plan.actions if i.verb is Verb.NOTICE}


def test_a_pool_that_wishes_for_no_more_than_its_core_gives_the_others_back() -> None:
    request = asking(high=3, engine="pool")
    core = replace(core_of(request, state=RUNNING), wish=Wish(after(-30), 1))
    others = [in_lane(request, i, RUNNING) for i in (1, 2)]
    assert leavers(core, *others) == {1: Why.WISH, 2: Why.WISH}


def test_a_core_whose_fragments_do_not_meet_trains_alone() -> None:
    request = asking(high=2)
    alone = core_of(request, state=RUNNING, said=Said.APART, has_agent=True)
    other = in_lane(request, 1, RUNNING, said=Said.APART, has_agent=True)
    assert leavers(alone, other) == {1: Why.BETTER_USE}


@pytest.mark.parametrize("ends_all", [False, True])
def test_a_worker_of_a_core_that_finds_no_work_leaves_the_others_to_end(ends_all: bool) -> None:
    request = asking(high=2, engine="pool", ends_all=ends_all)
    core = core_of(request, state=FragmentState.DONE, end=after(-20), nodes=("n1",))
    other = in_lane(request, 1, RUNNING)
    (back,) = (i for i in planned(core, other).actions if i.verb is Verb.PUT_BACK)
    assert (back.fragment.index, back.cause) == (0, Why.NO_WORK)
    assert back.mark is not None
    assert back.mark.idle == after(-20)
    rested = replace(core_of(request), mark=replace(back.mark, noticed=after(-10)))
    plan = planned(rested, other)
    assert (by_verb(plan, Verb.QUEUE), by_verb(plan, Verb.CANCEL), moves(plan)) == ([], [], [])
    wishing = replace(other, wish=Wish(after(-5), 2))
    assert by_verb(planned(rested, wishing), Verb.QUEUE) == [0]


def test_a_ceiling_that_only_cores_reach_keeps_no_node_idle() -> None:
    request = asking(high=3, core=2)
    cores = [core_of(request, i, RUNNING) for i in (0, 1)]
    settings = Settings(mode=Mode(max_nodes=1))
    plan = planned(*cores, in_lane(request, 2, noticed=after(-5)), settings=settings)
    assert [(idle.reason, idle.nodes) for idle in plan.idle] == [(Why.RESTING, 2)]


def test_a_ceiling_need_only_hold_what_the_core_lacks() -> None:
    request = asking(low=4, high=6, core=3)
    cores = [core_of(request, i, RUNNING) for i in (0, 1, 2)]
    others = [in_lane(request, i, RUNNING if i < 5 else HELD) for i in (3, 4, 5)]
    plan = planned(
        *cores, *others, settings=Settings(mode=Mode("on", max_nodes=2)), nodes=make_nodes(6)
    )
    ceilings = [text for text in texts(plan) if "mode.max_nodes" in text]
    assert len(ceilings) == 1
    assert ceilings[0].endswith("they get 2")


@pytest.mark.parametrize("hold", [{"reason": "JobHeldAdmin"}, {"is_on_hold": True}])
def test_a_fragment_that_an_operator_holds_is_not_moved(hold: dict[str, Any]) -> None:
    request = asking(high=3)
    held = [core_of(request, 1, **hold), core_of(request, 2)]
    fresh = job_of(in_lane(request, 0), *held)
    plan = plan_of(fresh)
    assert [i.fragment.index for i in moves(plan)] == [2]
    seen = snapshot_of(fresh)
    assert check(plan, Half.SECOND, seen, seen, Settings(mode=Mode("on"))) == plan


def test_a_core_that_slurm_holds_after_its_death_is_queued_once_that_is_on_record() -> None:
    request = asking(high=2)
    run = {"released": after(-3600), "restarts": 1, "eligible": after(-600)}
    dead = core_of(request, exit_code="1:0", **run)
    plan = planned(dead, in_lane(request, 1))
    assert by_verb(plan, Verb.QUEUE) == []
    (noted,) = (i for i in plan.actions if i.fragment.index == 0)
    assert noted.mark is not None
    assert noted.mark.failures == 1
