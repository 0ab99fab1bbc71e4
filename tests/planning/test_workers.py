"""Pools: exit codes, wishes, and the effect of starting and ending workers on their job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest
from care import care_for, ground_under, marks
from hypothesis import given, settings
from hypothesis import strategies as st
from readings import grown, noticed, plan_for

from build import (
    NOW,
    after,
    make_fragment,
    make_job,
    make_node,
    make_request,
    make_snapshot,
    plan_start,
)
from slurm_hooks.model import (
    AvoidedNode,
    Curve,
    Fragment,
    FragmentId,
    FragmentState,
    Learned,
    MalleableJob,
    Node,
    NodeState,
    Plan,
    Request,
    Said,
    Verb,
    Why,
    Wish,
)
from slurm_hooks.planning.cancels import is_crippled
from slurm_hooks.planning.lifecycle import Upkeep
from slurm_hooks.planning.plan import ending_jobs
from slurm_hooks.planning.workers import idle_since, is_out_of_work
from slurm_hooks.report.json_data import plan_data
from slurm_hooks.report.text import explain_lines, sizes
from slurm_hooks.report.why import reason_text

HELD, PENDING, RUNNING = FragmentState.HELD, FragmentState.PENDING, FragmentState.RUNNING
DONE, FAILED, TIMED_OUT = FragmentState.DONE, FragmentState.FAILED, FragmentState.TIMED_OUT
CANCELLED, LOST, UNKNOWN = FragmentState.CANCELLED, FragmentState.LOST, FragmentState.UNKNOWN
BACK_S = 121  # for so long Slurm delays a requeued job


def pool_of(most: int = 6, least: int = 0, unit: int = 1) -> Request:
    return replace(make_request(1, 6), min_nodes=least, max_nodes=most, unit=unit, engine="pool")


POOL = pool_of()


def worker(
    index: int, state: FragmentState = HELD, nodes: tuple[str, ...] = (), **fields: Any
) -> Fragment:
    """A worker without an agent, of a pool of 0 to 6."""
    values = {"has_agent": False, "request": POOL, "said": Said.NOTHING}
    return make_fragment(index, state, nodes, **{**values, **fields})


def running(index: int, **fields: Any) -> Fragment:
    return worker(index, RUNNING, (f"n{index + 1}",), **fields)


def requeued(index: int, at_s: float, **fields: Any) -> Fragment:
    """Held since Slurm put it back at that moment."""
    return worker(index, HELD, eligible=after(at_s + BACK_S), restarts=1, **fields)


def pool(*workers: Fragment, held: int = 0, wish: Optional[Wish] = None) -> MalleableJob:
    waiting = [worker(max((f.id.index for f in workers), default=-1) + 1 + i) for i in range(held)]
    every = [*workers, *waiting]
    if wish:
        every[0] = replace(every[0], wish=wish)
    request = replace(every[0].mark.request, fragments=len(every))
    return replace(make_job(*every), request=request)


def wished(nodes: int, at_s: float = -30) -> Wish:
    return Wish(after(at_s), nodes)


def nodes_for(*jobs: MalleableJob, free: int = 0) -> list[Node]:
    """Busy nodes for all running workers, and some free nodes."""
    busy = {n for job in jobs for f in job.fragments if f.state is RUNNING for n in f.nodes}
    named = [make_node(name, NodeState.BUSY) for name in sorted(busy)]
    return [*named, *(make_node(f"free{i}") for i in range(free))]


def plan(job: MalleableJob, *others: MalleableJob, free: int = 0, **fields: Any) -> Plan:
    nodes = nodes_for(job, *others, free=free)
    return plan_for(make_snapshot(job, *others, nodes=nodes, **fields))


def whys(planned: Plan) -> set[Why]:
    return {reason.why for job in planned.jobs for reason in job.reasons}


# -- how a worker ends


@pytest.mark.parametrize(
    ("state", "fields", "cause"),
    [
        (DONE, {}, Why.NO_WORK),
        (DONE, {"has_agent": True, "said": Said.JOINED}, Why.NO_WORK),
        (DONE, {"has_agent": True, "said": Said.TRAINED}, Why.NO_WORK),
        (DONE, {"noticed": after(-9)}, Why.LEFT),
        (DONE, {"has_agent": True, "said": Said.LEAVING}, Why.LEFT),
        (TIMED_OUT, {}, Why.LEASE_ENDED),
        (FAILED, {"exit_code": "1:0"}, Why.DIED),
        (LOST, {}, Why.DIED),
    ],
)
def test_the_end_of_a_worker(state: FragmentState, fields: dict[str, Any], cause: Why) -> None:
    ended = worker(0, state, ("n1",), end=after(-7), **fields)
    care = care_for(pool(ended, running(1)))
    (back,) = (a for a in care.actions if a.verb is Verb.PUT_BACK)
    assert back.cause is cause
    assert not care.has_ended
    mark = marks(care.actions)[0]
    assert mark.idle == (after(-7) if cause is Why.NO_WORK else None)
    assert mark.failures == 0  # the other has run for 200 s


def test_a_gang_has_no_idle_worker() -> None:
    done = make_fragment(0, DONE, ["n1"], said=Said.TRAINED)
    assert idle_since(done) is not None
    assert not is_out_of_work(ground_under(make_job(done)), make_job(done))
    assert marks(care_for(make_job(done, held=1)).actions)[0].idle is None


@pytest.mark.parametrize(
    ("others", "is_over"),
    [
        ([], True),
        ([worker(1)], True),  # it never ran
        ([worker(1, idle=after(-90))], True),
        ([requeued(1, -101)], True),  # before the other found no work
        ([requeued(1, -99)], False),
        ([requeued(1, -101, noticed=after(-99))], False),
        ([requeued(1, -300, released=after(-99))], False),  # and that release had no effect
        ([running(1)], False),
        ([worker(1, PENDING, ("n2",), released=after(-5))], False),
        ([worker(1, FragmentState.ENDING, ("n2",))], False),
        ([worker(1, UNKNOWN, ("n2",))], False),
        ([worker(1, FragmentState.SUSPENDED, ("n2",))], False),
        ([worker(1, TIMED_OUT, ("n2",), end=after(-150))], False),
        ([worker(1, FAILED, ("n2",), end=after(-150))], False),
        ([worker(1, CANCELLED, ("n2",), start=after(-300), end=after(-101))], True),
        ([worker(1, CANCELLED, ("n2",), start=after(-300), end=after(-99)), worker(2)], False),
        ([worker(1, CANCELLED, start=after(-99), end=after(-99))], True),  # it never ran
        ([worker(1, CANCELLED, end=after(-99), restarts=1, idle=after(-300))], True),
        ([worker(1, CANCELLED, end=after(-99), restarts=1), worker(2)], False),  # it was to go on
        ([worker(1, DONE, ("n2",), end=after(-100))], True),
        ([worker(1, DONE, ("n2",), end=after(-3), noticed=after(-9))], False),
    ],
)
@pytest.mark.parametrize(
    "first", [worker(0, idle=after(-100)), worker(0, DONE, ("n1",), end=after(-100))]
)
def test_the_end_of_a_pool(first: Fragment, others: list[Fragment], is_over: bool) -> None:
    assert care_for(pool(first, *others)).has_ended is is_over


def test_the_end_of_a_pool_outlives_the_cancel_of_waiting_workers() -> None:
    care = care_for(pool(worker(0, DONE, ("n1",), end=after(-5)), held=2))
    noted, other = care.actions
    assert noted.mark is not None
    assert noted.mark.is_finished
    assert {a.verb for a in care.actions} == {Verb.CANCEL}
    assert {a.cause for a in care.actions} == {Why.FINISHED}
    assert (noted.fragment.index, other.fragment.index) == (1, 2)
    later = pool(worker(0, CANCELLED, idle=after(-5)), worker(1, CANCELLED, is_finished=True))
    again = care_for(later)
    assert again.actions == ()
    assert again.reasons[0].why is Why.FINISHED
    assert "1 worker ended with exit code 0" in reason_text(again.reasons[0])


@pytest.mark.parametrize("unread", [0, 1])
def test_a_row_that_cannot_be_read_may_be_a_worker(unread: int) -> None:
    job = replace(pool(worker(0, idle=after(-5)), held=1), unread=unread)
    assert is_out_of_work(ground_under(job), job) is not bool(unread)


@pytest.mark.parametrize("state", [RUNNING, HELD, DONE, FAILED, TIMED_OUT])
def test_a_report_of_the_end_holds_for_any_end_of_the_leader(state: FragmentState) -> None:
    leader = worker(0, state, ("n1",), has_agent=True, said=Said.FINISHED)
    job = pool(leader, running(1), worker(2, PENDING, ("n3",), released=after(-5)), held=1)
    care = care_for(job)
    assert care.has_ended
    cancelled = {a.fragment.index for a in care.actions if a.verb is Verb.CANCEL}
    assert cancelled == ({0, 1, 2, 3} if state is HELD else {1, 2, 3})
    finished = {i for i, mark in marks(care.actions).items() if mark.is_finished}
    assert finished == {0, 1} if state is RUNNING else 1 in finished


def test_a_cancelled_pool_remains_cancelled_although_a_worker_had_found_no_work() -> None:
    job = pool(worker(0, CANCELLED, idle=after(-50)), worker(1, CANCELLED, ("n2",)))
    assert care_for(job).reasons[0].why is Why.CANCELLED
    some = pool(running(0), worker(1, CANCELLED, ("n2",)), held=1)
    assert not care_for(some).has_ended
    assert not is_crippled(replace(some, request=pool_of(6, 3)))


def forgotten() -> MalleableJob:
    """Its first worker had found no work. No tick ran for longer than MinJobAge after it."""
    job = pool(running(1), worker(2))
    return replace(job, request=replace(job.request, fragments=3))


# -- workers that start

IDLE = worker(1, idle=after(-100))
LEFT_WORK = worker(1, CANCELLED, ("n2",), start=after(-300), end=after(-5))
VAIN = {"vain": 2, "released": after(-5)}


@pytest.mark.parametrize(
    ("job", "started"),
    [
        (pool(running(0), requeued(1, -50), held=2), [1, 2, 3]),
        (pool(running(0), IDLE, requeued(2, -50), requeued(3, -150), held=2), [2]),
        (pool(running(0), IDLE, requeued(2, -100)), [2]),  # in the same second
        (pool(IDLE, requeued(2, -100)), [2]),
        (pool(running(0), worker(1, CANCELLED, ("n2",)), held=1), [2]),
        (pool(worker(0, idle=after(-100)), LEFT_WORK, held=1), [0, 2]),
        (pool(worker(0, idle=after(-5)), LEFT_WORK, held=1), [0, 2]),  # in the same second
        (forgotten(), [2]),
        (pool(worker(0, obstacle="NotStarted", **VAIN), held=2), [1, 2]),  # a node taken first
        (pool(worker(0, obstacle="AssocGrpNodeLimit", **VAIN), held=2), []),
    ],
)
def test_the_workers_that_are_started(job: MalleableJob, started: list[int]) -> None:
    care = care_for(job)
    assert [f.id.index for f in care.growable] == started
    assert not care.has_ended


def test_nodes_beyond_a_pool_s_work_are_given_to_others_in_the_same_tick() -> None:
    job = pool(running(0), IDLE, requeued(2, -50), held=4)
    planned = plan(job, free=6)
    assert grown(planned) == {"free0"}
    assert {Why.NO_WORK, Why.OTHER_NODES} <= whys(planned)
    other = make_job(held=3, job_id=8)
    assert len(grown(plan(pool(running(0), IDLE, held=4), other, free=3))) == 3


@pytest.mark.parametrize(
    ("wish", "counts", "grows"),
    [
        (wished(2, -101), False, 0),
        (wished(2, -100), False, 0),
        (wished(2, -99), True, 2),
        (wished(0, -50), True, 0),
    ],
)
def test_a_newer_wish_makes_all_start_again(wish: Wish, counts: bool, grows: int) -> None:
    planned = plan(pool(worker(0, idle=after(-100)), held=2, wish=wish), free=4)
    assert bool(ending_jobs(planned)) is not counts
    assert len(grown(planned)) == grows


def test_a_release_forgets_that_there_was_no_work() -> None:
    job = pool(worker(0, idle=after(-100)), wish=wished(1, -50))
    (grow,) = (a for a in plan(job, free=1).actions if a.verb is Verb.GROW)
    assert grow.mark is not None
    assert grow.mark.idle is None


# -- wishes


@pytest.mark.parametrize(("nodes", "size"), [(0, 0), (3, 3), (6, 6), (60_000, 6)])
def test_a_pool_grows_to_its_wish(nodes: int, size: int) -> None:
    planned = plan(pool(held=6, wish=wished(nodes)), free=9)
    assert len(grown(planned)) == planned.jobs[0].nodes_planned == size
    assert (Why.WISH in whys(planned)) is (nodes < 6)


def test_beyond_the_wish_arriving_workers_leave_first_and_then_the_youngest() -> None:
    starts = [-900, -30, -400, -100]
    workers = [running(i, start=after(s)) for i, s in enumerate(starts)]
    planned = plan(pool(*workers, wish=wished(2)), free=2)
    assert noticed(planned) == {1: Why.WISH, 3: Why.WISH}
    assert grown(planned) == set()
    coming = worker(4, PENDING, ("free0",), released=after(-5))
    planned = plan(pool(*workers, coming, wish=wished(4)), free=1)
    assert [a.fragment.index for a in planned.actions if "hold" in a.parts] == [4]
    assert noticed(planned) == {}


def test_a_pool_with_a_wish_of_0_gives_all_nodes_back_and_waits() -> None:
    coming = worker(2, PENDING, ("free0",), released=after(-5))
    planned = plan(pool(running(0), running(1), coming, held=1, wish=wished(0)), free=3)
    assert noticed(planned) == {0: Why.WISH, 1: Why.WISH}
    assert [a.fragment.index for a in planned.actions if "hold" in a.parts] == [2]
    assert planned.jobs[0].nodes_planned == 0
    assert not ending_jobs(planned)
    assert whys(planned) == {Why.WISH, Why.GIVEN_BACK}


def test_a_wish_is_for_whole_units() -> None:
    request = pool_of(6, 0, 2)
    job = pool(*(worker(i, request=request) for i in range(3)), wish=wished(5))
    assert len(grown(plan(job, free=6))) == 4
    less = pool(worker(0, RUNNING, ("n1", "n2"), request=request), wish=wished(1))
    assert noticed(plan(less)) == {0: Why.WISH}


# -- a pool among others


def test_a_pool_that_never_reported_is_no_lone_script() -> None:
    job = pool(*(running(i) for i in range(3)), held=1)
    planned = plan(job, free=1)
    assert noticed(planned) == {}
    assert grown(planned) == {"free0"}


@pytest.mark.parametrize("curve", [None, Curve(((0, 0.0), (1, 1.0), (3, 1.2), (6, 1.3)))])
def test_a_pool_leaves_a_gang_its_minimum(curve: Optional[Curve]) -> None:
    """The rule holds for any size of the pool and any curve of the gang."""
    gang = make_job(held=6, job_id=8, request=make_request(3, 6))
    job = pool(*(running(i) for i in range(6)))
    assert len(noticed(plan(job, gang, curves={8: curve} if curve else {}))) >= 3


@pytest.mark.parametrize(("wanted", "gets"), [(60, 3), (2, 2), (0, 0)])
def test_a_later_pool_gets_its_share_of_the_first_pool_s_nodes(wanted: int, gets: int) -> None:
    first = pool(*(running(i) for i in range(6)))
    later = [replace(worker(i), id=FragmentId(8, i)) for i in range(6)]
    later[0] = replace(later[0], wish=wished(wanted))
    second = replace(pool(*later), job_id=8)
    assert len(noticed(plan(first, second))) == gets
    assert len(grown(plan(second, first, free=6))) == (6 if wanted == 60 else gets)


def test_a_pool_does_not_begin_small_to_be_seen() -> None:
    many = [make_job(held=6, job_id=i) for i in (8, 9)]
    planned = plan(pool(held=6), *many, free=6, learned={i: Learned() for i in (7, 8, 9)})
    begins = [Why.PROBED in [reason.why for reason in job.reasons] for job in planned.jobs]
    assert begins == [False, True, True]


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_no_pool_has_a_node_that_a_gang_lacks_to_start(data: st.DataObject) -> None:
    """For any curves of the gangs: each node of the pool is beyond the needs of all gangs."""
    free = data.draw(st.integers(1, 10))
    gangs, curves = [], {}
    for job_id in range(8, 8 + data.draw(st.integers(1, 3))):
        least = data.draw(st.integers(1, 5))
        gangs.append(make_job(held=6, job_id=job_id, request=make_request(least, 6)))
        steps = [data.draw(st.floats(0.05, 1.0)) for _ in range(6)]
        sums = [sum(sorted(steps, reverse=True)[:n]) for n in range(7)]
        if data.draw(st.booleans()):
            curves[job_id] = Curve(tuple(enumerate(map(float, sums))))
    planned = plan(pool(held=6), *gangs, free=free, curves=curves)
    sizes = {job.job_id: job.nodes_planned for job in planned.jobs}
    assert sum(sizes.values()) <= free
    for gang in gangs:
        assert sizes[gang.job_id] or sizes[7] < gang.request.min_nodes


def test_texts_about_a_pool_show_its_wish() -> None:
    job = pool(running(0), held=5, wish=wished(1))
    seen = make_snapshot(job, nodes=nodes_for(job, free=4))
    lines = explain_lines(job, plan_for(seen), NOW)
    assert "1 node of 0-6, wish 1, engine pool" in lines[0]
    assert "wishes for at most 1 node now, and has that" in lines
    assert sizes(pool(held=2), NOW) == "0-6"
    none = plan_data(plan(pool(held=2, wish=wished(0))), NOW)
    assert [r["why"] for r in none["jobs"][0]["reasons"]] == ["wish"]


def test_a_change_costs_a_pool_no_work_and_no_wait() -> None:
    job = pool(running(0, start=after(-2)), requeued(1, -9, noticed=after(-9)), held=2)
    assert len(grown(plan(job, free=3))) == 3


@pytest.mark.parametrize(("runs", "reachable"), [(0, 4), (1, 1), (3, 1)])
def test_the_minimum_of_a_pool_holds_for_a_start_from_0_workers(runs: int, reachable: int) -> None:
    """No working worker is stopped because another worker has left."""
    request = pool_of(6, 4)
    workers = [running(i, request=request, start=after(-9000)) for i in range(runs)]
    rest = [worker(i, request=request) for i in range(runs, 6)]
    job = pool(*workers, *rest)
    assert len(grown(plan(job, free=3))) == (0 if not runs else 3)
    assert noticed(plan(job)) == {}
    assert len(grown(plan(job, free=reachable))) == reachable


@pytest.mark.parametrize("runs", [0, 5])
def test_a_wish_below_the_minimum_wins(runs: int) -> None:
    request = pool_of(6, 4)
    workers = [running(i, request=request) for i in range(runs)]
    job = pool(*workers, *(worker(i, request=request) for i in range(runs, 6)), wish=wished(2))
    assert plan(job, free=6).jobs[0].nodes_planned == 2


def test_a_worker_runs_until_slurm_takes_its_node() -> None:
    job = pool(running(0), running(1))
    soon = [plan_start(["n1"], 100)]
    assert noticed(plan(job, planned=soon)) == {}
    fragile = pool(running(0, has_agent=True, loss_s=9000.0), running(1))
    assert noticed(plan(fragile, planned=soon)) == {0: Why.HOLE_CLOSES}


# -- failures


def dead(index: int, ran_s: float = 2, **fields: Any) -> Fragment:
    values = {"exit_code": "1:0", "start": after(-1 - ran_s), "end": after(-1)}
    return worker(index, FAILED, (f"n{index + 1}",), **{**values, **fields})


def care(*workers: Fragment) -> Upkeep:
    return care_for(pool(*workers))


@pytest.mark.parametrize(("ran_s", "grows"), [(None, 1), (59, 0), (60, 4)])
def test_after_a_failure_a_single_worker_is_tried_until_it_has_lived_for_a_while(
    ran_s: Optional[int], grows: int
) -> None:
    values = {"failures": 1, "noticed": after(-90)}
    rest = [worker(i, deaths=(AvoidedNode(f"x{i}", after(-90)),), **values) for i in range(6)]
    if ran_s is not None:
        rest[0] = running(0, start=after(-ran_s))
    planned = plan(pool(*rest), free=4)
    assert len(grown(planned)) == grows
    (waits,) = [r.detail for r in planned.jobs[0].reasons if r.why is Why.RESTING] or [None]
    assert (waits is not None) is (grows < 4)
    assert waits is None or waits.get("until") == (None if ran_s is None else after(60 - ran_s))


def test_the_last_failure_stops_the_pool_and_names_code_and_node() -> None:
    cared_for = care(dead(2, failures=2), worker(3))
    assert cared_for.has_ended
    assert {m.stopped for m in marks(cared_for.actions).values()} == {
        "failed-3-times:exit-1:0-on-n3"
    }


@pytest.mark.parametrize(
    ("peer_s", "ran_s", "counts"),
    [
        (59, 2, True),  # no evidence yet
        (60, 2, False),
        (200, 150, False),
        (200, 198, False),
        (200, 200, True),  # they die in turn
        (200, 400, True),
    ],
)
def test_a_worker_that_outlived_the_dead_worker_shows_that_the_script_works(
    peer_s: float, ran_s: float, counts: bool
) -> None:
    cared_for = care(dead(0, ran_s, failures=2), running(1, start=after(-peer_s)))
    assert cared_for.has_ended is counts


@pytest.mark.parametrize(
    ("peer", "forgives"),
    [
        (running(1, start=after(-599), end=after(300)), False),
        (running(1, start=after(-600), end=after(300)), True),  # a whole lease
        (running(1, said=Said.TRAINED, has_agent=True), True),
        (worker(1, idle=after(-9)), True),
        (worker(1, idle=after(-99)), False),  # before it failed
        (
            worker(1, TIMED_OUT, ("n2",), start=after(-130), end=after(-9), limit=after(120) - NOW),
            True,
        ),
        (
            worker(1, TIMED_OUT, ("n2",), start=after(-100), end=after(-9), limit=after(120) - NOW),
            False,
        ),
    ],
)
def test_finished_work_forgives_failures(peer: Fragment, forgives: bool) -> None:
    failed = worker(0, failures=2, deaths=(AvoidedNode("n1", after(-50)),))
    extra = running(2, start=after(-5))
    assert (marks(care(failed, peer, extra).actions).get(0, failed.mark).failures == 0) is forgives


def test_pools_may_have_no_minimum_and_gangs_must() -> None:
    assert pool_of(6, 0).min_nodes == 0
    with pytest.raises(ValueError, match="0-6 are not a range"):
        make_request(0, 6)
    with pytest.raises(ValueError, match="0-0 are not a range"):
        pool_of(0, 0)
