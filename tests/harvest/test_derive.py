"""Events between two snapshots that follow each other."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build import (
    NOW,
    after,
    make_fragment,
    make_job,
    make_mark,
    make_node,
    make_nodes,
    make_request,
    make_snapshot,
    no_clock,
    span,
)
from slurm_hooks.history.harvest.delays import MOST
from slurm_hooks.history.harvest.derive import record_of
from slurm_hooks.history.harvest.values import Cost, LaneWait, Record, Seen
from slurm_hooks.model import (
    Fragment,
    FragmentState,
    MalleableJob,
    NodeState,
    Off,
    OtherStart,
    Plan,
    PlannedStart,
    Resources,
    Said,
    Slot,
    Snapshot,
    Terms,
    Why,
)
from slurm_hooks.model.snapshot.codec import from_data, to_data
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.settings.values import Mode, Settings

RUNNING, HELD = FragmentState.RUNNING, FragmentState.HELD
COST = Cost(0.1, 0.0, 2, 5, 0)
SETTINGS = Settings()


def at(seconds: float, *jobs: MalleableJob, **fields: Any) -> Snapshot:
    fields.setdefault("nodes", make_nodes(4))
    return replace(make_snapshot(*jobs, **fields), now=after(seconds))


def then(last: Optional[Seen], seen: Snapshot, plan: Optional[Plan] = None) -> Record:
    return record_of(last, seen, plan or Plan(), COST, SETTINGS)


def kept_over(seen: Seen) -> Seen:
    """The memory as the next tick reads it."""
    back: Seen = from_data(Seen, json.loads(json.dumps(to_data(seen))))
    return back


def summed(record: Record, name: str, label: str = "") -> float:
    """The sum of these events, of all labels if none is named."""
    events = (event for event in (*record.since, *record.standing) if event.name == name)
    return sum(event.value for event in events if label in ("", event.label))


def running(index: int = 0, node: str = "n1", start_s: float = -200, **fields: Any) -> Fragment:
    return make_fragment(index, RUNNING, [node], start=after(start_s), **fields)


def test_the_first_tick_only_records_the_present_state() -> None:
    record = then(None, at(0, make_job(running())))
    assert (summed(record, "span_seconds"), record.node_s, record.endings) == (0, 0, ())
    assert record.jobs[0].nodes == 1


def test_a_lane_that_gives_no_node_at_once_is_kept() -> None:
    slow = Terms("gpu", grace=span(600))
    seen = at(0, terms=(slow, Terms("quick")))
    kept = then(None, seen).seen
    assert kept.lanes == (LaneWait(slow, seen.slurm.kill_wait, span(600 + 2 * 580)),)
    assert kept_over(kept) == kept


def test_a_run_counts_from_its_start_by_slurms_clock() -> None:
    first = then(None, at(0, make_job(make_fragment(0))))
    second = then(first.seen, at(30, make_job(running(start_s=12))))
    assert second.node_s == 18
    assert then(second.seen, at(90, make_job(running(start_s=12)))).node_s == 60


def test_a_start_in_the_second_of_the_last_tick_is_no_idle_time_as_well() -> None:
    seen = at(0, make_job(make_fragment(0)), nodes=make_nodes(1))
    first = then(None, seen, make_plan(seen, Settings(mode=Mode("on")), no_clock))
    assert first.seen.idle == ((Why.STARTING, 1),)
    second = then(first.seen, at(30, make_job(running(start_s=0)), nodes=make_nodes(1)))
    assert (second.node_s, summed(second, "idle_node_seconds")) == (30, 0)


def test_missed_ticks_lose_the_reasons_and_not_the_harvest() -> None:
    plan = make_plan(at(0, make_job(running())), Settings(mode=Mode("on")), no_clock)
    first = then(None, at(0, make_job(running())), plan)
    second = then(first.seen, at(1000, make_job(running())))
    assert (second.node_s, summed(second, "span_seconds")) == (1000, 1000)
    assert summed(second, "unseen_seconds") == 880
    assert summed(second, "idle_node_seconds") == 3 * 120


def test_a_core_of_gpus_counts_its_part_of_a_node() -> None:
    request = replace(make_request(), core=2, lane="malleable", slot=Slot("gpu"))
    node = make_node("n1", cpus=32, gres=(("gpu", 8),))
    mark = replace(make_mark(), request=request, slots=1)
    asks = Resources(1, 0, (("gpu", 1),))
    cores = [running(i, start_s=0, mark=mark, asks=asks, lane="main") for i in (0, 1)]
    seen = at(60, make_job(*cores), nodes=(node,))
    assert summed(then(Seen(NOW), seen), "core_node_seconds") == 2 / 8 * 60


def test_a_core_is_no_harvest() -> None:
    request = replace(make_request(), core=1, lane="malleable")
    core = running(request=request, start_s=0, lane="main")
    job = make_job(core, running(1, "n2", start_s=0, request=request, lane="malleable"))
    first = then(None, at(0, job))
    assert (summed(first, "nodes", "ours"), first.jobs[0].nodes) == (1, 1)
    second = then(first.seen, at(60, job))
    assert (second.node_s, summed(second, "core_node_seconds")) == (60, 60)
    spent = replace(core, state=HELD, nodes=frozenset(), restarts=1)
    back = replace(spent, mark=replace(core.mark, is_spent=True))
    third = then(second.seen, at(90, replace(job, fragments=(back, job.fragments[1]))))
    assert third.endings == ()


def test_a_clock_that_was_set_back_counts_no_time_twice() -> None:
    first = then(None, at(100, make_job(running())))
    assert then(first.seen, at(50, make_job(running()))).node_s == 0


HIT_STATES = (
    (make_fragment(0, HELD, restarts=1, eligible=after(141)), Why.PREEMPTED),
    (make_fragment(0, FragmentState.LOST, ["n1"], end=after(20)), Why.NODE_FAILED),
    (make_fragment(0, FragmentState.FAILED, ["n1"], exit_code="1:0", end=after(20)), Why.DIED),
    (make_fragment(0, FragmentState.CANCELLED, ["n1"], end=after(20)), Why.CANCELLED),
    (
        make_fragment(0, FragmentState.DONE, ["n1"], said=Said.FINISHED, end=after(20)),
        Why.FINISHED,
    ),
    (make_fragment(0, HELD, restarts=1, said=Said.LEAVING, eligible=after(141)), Why.LEFT),
    (make_fragment(0, HELD, restarts=1, noticed=after(5), eligible=after(141)), Why.LEFT),
    (make_fragment(0, FragmentState.TIMED_OUT, ["n1"], end=after(400)), Why.LEASE_ENDED),
)


@pytest.mark.parametrize(("least", "kind"), [(1, Why.LEFT), (2, Why.DIED)])
def test_a_fragment_that_gives_up_apart_has_died_where_a_tick_counts_a_failure(
    least: int, kind: Why
) -> None:
    gave_up = make_fragment(
        0,
        FragmentState.FAILED,
        ["n1"],
        request=make_request(least, 4),
        said=Said.APART,
        exit_code="1:0",
        end=after(20),
    )
    first = then(None, at(0, make_job(running())))
    (ending,) = then(first.seen, at(30, make_job(gave_up))).endings
    assert ending.kind is kind


@pytest.mark.parametrize(("fragment", "kind"), HIT_STATES, ids=[k.value for _, k in HIT_STATES])
def test_the_end_of_a_run(fragment: Fragment, kind: Why) -> None:
    first = then(None, at(0, make_job(running())))
    now = 410 if kind is Why.LEASE_ENDED else 30
    (ending,) = then(first.seen, at(now, make_job(fragment))).endings
    assert ending.kind is kind
    assert ending.is_exact
    assert ending.node_s == (600 if kind is Why.LEASE_ENDED else 220)


def test_a_requeue_that_a_tick_has_planned_is_no_interruption() -> None:
    down = replace(make_nodes(1)[0], state=NodeState.LEAVING)
    seen = at(0, make_job(running()), nodes=(down,))
    first = then(None, seen, make_plan(seen, Settings(mode=Mode("on")), no_clock))
    back = make_fragment(0, HELD, restarts=1, eligible=after(141), said=Said.JOINED)
    (ending,) = then(first.seen, at(30, make_job(back))).endings
    assert (ending.kind, ending.cause) == (Why.LEFT, "node_leaves")


@pytest.mark.parametrize(
    ("said", "ran_s", "is_told"),
    [
        (Said.NOTHING, 230, True),
        (Said.STARTED, 230, True),
        (Said.NOTHING, 40, False),
        (Said.JOINED, 230, False),
        (Said.TRAINED, 230, False),
    ],
)
def test_a_run_that_joined_no_round_did_not_train(said: Said, ran_s: float, is_told: bool) -> None:
    first = then(None, at(0, make_job(running(start_s=30 - ran_s))))
    back = make_fragment(0, HELD, restarts=1, eligible=after(151), said=said)
    (ending,) = then(first.seen, at(30, make_job(back))).endings
    assert (ending.cause == "not_training") is is_told


DONE = FragmentState.DONE
GONE = FragmentState.CANCELLED
POOL = replace(make_request(), engine="pool")
OVER = (
    ((make_fragment(0, DONE, said=Said.FINISHED), make_fragment(1, GONE)), Why.FINISHED),
    ((make_fragment(0, DONE, has_agent=False),), Why.SCRIPT_ENDED),
    ((make_fragment(0, DONE, said=Said.FINISHED, request=POOL),), Why.NO_WORK),
    ((make_fragment(0, GONE, gone=0), make_fragment(1, GONE, gone=0)), Why.CANCELLED),
    ((make_fragment(0, FragmentState.FAILED),), Why.ENDED),
    ((make_fragment(0, HELD, stopped="failed-3-times"),), Why.STOPPED),
    ((make_fragment(0, HELD),), None),
)


@pytest.mark.parametrize(("fragments", "over"), OVER, ids=[str(over) for _, over in OVER])
def test_the_reason_why_a_job_is_over(fragments: tuple[Fragment, ...], over: Optional[Why]) -> None:
    seen = at(0, make_job(*fragments))
    record = then(None, seen, make_plan(seen, Settings(mode=Mode("on")), no_clock))
    assert record.jobs[0].over is over
    assert bool(record.jobs[0].stop) == (over is Why.STOPPED)


@pytest.mark.parametrize(
    ("fragment", "late_s", "how"),
    [
        (make_fragment(0, HELD), 30, Why.NEVER_RAN),
        (make_fragment(0, HELD), 900, Why.UNKNOWN),
        (make_fragment(0, HELD, restarts=1, run=1), 30, Why.UNKNOWN),
        (running(), 30, Why.UNKNOWN),
    ],
)
def test_the_end_of_a_job_that_slurm_has_dropped(
    fragment: Fragment, late_s: float, how: Why
) -> None:
    first = then(None, at(0, make_job(fragment)))
    (lost,) = then(first.seen, at(late_s)).forgotten
    assert (lost.job_id, lost.how) == (7, how)


def test_an_end_without_a_moment_is_halfway_and_marked_uncertain() -> None:
    first = then(None, at(0, make_job(running())))
    record = then(first.seen, at(30, make_job(make_fragment(0, HELD, restarts=1))))
    assert (record.node_s, summed(record, "uncertain_node_seconds")) == (15, 15)


def test_a_requeued_run_that_is_still_ending_has_not_ended() -> None:
    """Slurm already counts the restart, and gives the present time as its start at each
    question.
    """
    first = then(None, at(0, make_job(running())))
    ending = make_fragment(0, FragmentState.ENDING, ["n1"], restarts=1, start=after(10))
    second = then(first.seen, at(10, make_job(ending)))
    assert (second.endings, second.node_s) == ((), 10)
    back = make_fragment(0, HELD, restarts=1, eligible=after(126))
    (end,) = then(second.seen, at(30, make_job(back))).endings
    assert (end.kind, end.node_s) == (Why.PREEMPTED, 205)


def test_a_run_that_no_tick_saw_is_an_interruption_of_unknown_length() -> None:
    first = then(None, at(0, make_job(make_fragment(0, HELD, released=NOW))))
    back = make_fragment(0, HELD, restarts=1, released=NOW, eligible=after(141))
    (ending,) = then(first.seen, at(30, make_job(back))).endings
    assert ending.is_interruption
    assert (ending.node_s, ending.is_exact) == (0, False)


def test_a_job_that_slurm_has_forgotten_is_no_interruption() -> None:
    first = then(None, at(0, make_job(running())))
    (ending,) = then(first.seen, at(30)).endings
    assert (ending.kind, ending.is_interruption) == (Why.UNKNOWN, False)


def test_a_forgotten_fragment_did_not_outlive_its_lease() -> None:
    first = then(None, at(0, make_job(running(end=after(40)))))
    record = then(first.seen, at(1000))
    assert [(job.job_id, job.node_s) for job in record.forgotten] == [(7, 20)]
    assert (record.node_s, summed(record, "uncertain_node_seconds")) == (20, 20)


def test_an_ending_fragment_has_not_ended() -> None:
    first = then(None, at(0, make_job(running())))
    ending = make_fragment(0, FragmentState.ENDING, ["n1"], end=after(20))
    second = then(first.seen, at(30, make_job(ending)))
    assert second.endings == ()
    back = make_fragment(0, HELD, restarts=1, eligible=after(141))
    third = then(second.seen, at(60, make_job(back)))
    assert [e.kind for e in third.endings] == [Why.PREEMPTED]


def test_a_late_start_is_ours_only_while_we_were_on_its_nodes() -> None:
    plan = (PlannedStart("9", after(20), frozenset({"n1", "n2"})),)
    other = (PlannedStart("8", after(20), frozenset({"n3"})),)
    first = then(None, at(0, make_job(running()), planned=plan + other))
    began = (
        OtherStart("8", after(29), frozenset({"n3"})),
        OtherStart("9", after(25), frozenset({"n1", "n2"})),
    )
    gone = make_fragment(0, HELD, restarts=1, eligible=after(145))
    record = then(first.seen, at(30, make_job(gone), started=began))
    assert [(d.job_id, d.late_s, d.held_s) for d in record.delays] == [("8", 9, 0), ("9", 5, 4)]
    assert then(record.seen, at(60, make_job(gone), started=began)).delays == ()


@pytest.mark.parametrize("said", [Said.TRAINED, Said.LEAVING])
@pytest.mark.parametrize(
    ("start_s", "name", "taker"), [(25, "n1", "gpu"), (25, "n2", ""), (5, "n1", "")]
)
def test_a_job_that_began_on_the_nodes_of_a_preempted_fragment_took_them(
    said: Said, start_s: int, name: str, taker: str
) -> None:
    """In a grace time the fragment leaves by itself. A job that began earlier did not take
    its nodes.
    """
    first = then(None, at(0, make_job(running())))
    began = (OtherStart("9", after(start_s), frozenset({name, "n7"}), "gpu"),)
    gone = make_fragment(0, HELD, restarts=1, eligible=after(141), said=said)
    (ending,) = then(first.seen, at(30, make_job(gone), started=began)).endings
    assert (ending.taker, ending.taken) == (taker, frozenset({"n1"} if taker else ()))


def test_nodes_that_a_tick_gave_back_are_not_preempted() -> None:
    first = then(None, at(0, make_job(running(noticed=after(-5)))))
    began = (OtherStart("9", after(25), frozenset({"n1"}), "gpu"),)
    gone = make_fragment(0, HELD, restarts=1, eligible=after(141), noticed=after(-5))
    (ending,) = then(first.seen, at(30, make_job(gone), started=began)).endings
    assert (ending.kind, ending.taker) == (Why.LEFT, "")


def test_promises_of_jobs_that_never_start_are_bounded() -> None:
    plan = tuple(PlannedStart(f"{i}", after(10**6 + i), frozenset()) for i in range(MOST + 5))
    first = then(None, at(0, planned=plan))
    assert len(first.seen.promises) == MOST + 5
    kept = then(first.seen, at(30)).seen.promises
    assert len(kept) == MOST
    assert f"{MOST}" not in {promise.job_id for promise in kept}


def test_a_start_as_promised_is_no_delay() -> None:
    plan = (PlannedStart("9", after(20), frozenset({"n1"})),)
    first = then(None, at(0, make_job(running()), planned=plan))
    began = (OtherStart("9", after(20), frozenset({"n1"})),)
    assert then(first.seen, at(30, make_job(running()), started=began)).delays == ()


def test_a_job_waits_over_several_ticks_while_we_sit_there() -> None:
    plan = (PlannedStart("9", after(10), frozenset({"n1"})),)
    last = then(None, at(0, make_job(running()), planned=plan)).seen
    for now in (30, 60):
        later = (PlannedStart("9", after(now + 10), frozenset({"n1"})),)
        last = then(last, at(now, make_job(running()), planned=later)).seen
    began = (OtherStart("9", after(70), frozenset({"n1"})),)
    (delay,) = then(last, at(90, make_job(running()), started=began)).delays
    assert (delay.late_s, delay.held_s) == (60, 60)


@given(st.integers(0, 3), st.integers(0, 3), st.integers(1, 3), st.integers(-50, 300))
def test_no_node_second_is_counted_twice(ran: int, runs: int, wait: int, ahead: int) -> None:
    """Harvested and idle together never exceed the nodes times the time."""
    old = [running(i, f"n{i + 1}") for i in range(ran)]
    seen = at(0, make_job(*old, held=4 - ran), nodes=make_nodes(4))
    first = then(None, seen, make_plan(seen, Settings(mode=Mode("on")), no_clock))
    new = [running(i, f"n{i + 1}", -200 if i < ran else wait) for i in range(runs)]
    later = at(ahead, make_job(*new, held=4 - runs))
    record = then(first.seen, later, make_plan(later, Settings(mode=Mode("on")), no_clock))
    known = record.node_s - summed(record, "uncertain_node_seconds")
    assert 0 <= known <= 4 * max(ahead, 0)
    assert summed(record, "idle_node_seconds") <= 4 * max(ahead, 0)
    assert kept_over(record.seen) == record.seen


def test_the_reasons_of_idle_nodes() -> None:
    def idle(*jobs: MalleableJob, **fields: Any) -> dict[Why, int]:
        plan = make_plan(at(0, *jobs, **fields), Settings(mode=Mode("on")), no_clock)
        return {item.reason: item.nodes for item in plan.idle}

    assert idle() == {Why.NO_JOB: 4}
    assert idle(make_job(held=6)) == {Why.STARTING: 4}
    assert idle(make_job(running(noticed=after(-5)), held=5)) == {Why.RESTING: 3}
    soon = (PlannedStart("9", after(90), frozenset({"n1", "n2"})),)
    assert idle(make_job(held=6), planned=soon) == {
        Why.STARTING: 2,
        Why.HOLE_SHORT: 2,
    }


def test_a_mode_or_a_ceiling_is_named_as_the_reason_of_idle_nodes() -> None:
    def idle(mode: Mode, **fields: Any) -> dict[Why, int]:
        settings = Settings(mode=mode)
        fields.setdefault("job", make_job(held=6, user="ann"))
        plan = make_plan(at(0, fields.pop("job"), **fields), settings, no_clock)
        return {item.reason: item.nodes for item in plan.idle}

    assert idle(Mode("on"), off=Off(NOW)) == {Why.OFF: 4}
    assert idle(Mode("on"), no_growth=Off(NOW)) == {Why.NO_GROWTH: 4}
    assert idle(Mode("observe")) == {Why.OBSERVED: 4}
    assert idle(Mode("on", max_nodes=3)) == {Why.STARTING: 3, Why.CEILING: 1}
    resting = make_job(running(noticed=after(-5)), held=5)
    assert idle(Mode("on", max_nodes=1), job=resting) == {Why.CEILING: 3}
    assert idle(Mode("on", max_nodes=2), job=resting) == {Why.RESTING: 3}  # room for a single node


def test_a_part_of_a_node_counts_as_that_part() -> None:
    asked = replace(make_request(1, 8), slot=Slot("gpu"))
    four = Resources(4, 32_000, (("gpu", 4),))
    part = running(mark=make_mark(asked, slots=4), asks=four)
    job = make_job(part, request=asked)
    node = make_node("n1", NodeState.BUSY, cpus=32, memory_mib=64_000, gres=(("gpu", 8),))
    first = then(None, at(0, job, nodes=(node,)))
    record = then(kept_over(first.seen), at(60, job, nodes=(node,)))
    assert record.jobs[0].node_s == 30.0
    assert record.jobs[0].nodes == 4
    assert [summed(record, "nodes", use) for use in ("ours", "others")] == [0.5, 0.5]
