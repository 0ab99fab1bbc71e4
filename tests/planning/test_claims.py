"""All jobs' minimums come before any job's extra nodes, and no job waits for its minimum
without end.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from readings import SHIPPED, noticed, plan_for, renewed

from build import after, make_fragment, make_job, make_node, make_request, make_snapshot, span
from slurm_hooks.model import (
    Curve,
    FragmentState,
    MalleableJob,
    Needs,
    Node,
    NodeState,
    Reservation,
    Said,
    Why,
)
from slurm_hooks.planning.claims import waited
from slurm_hooks.planning.ground import Ground
from slurm_hooks.settings.values import Mode, Planning, Settings

RUNNING = FragmentState.RUNNING
LINEAR = Curve(((0, 0.0), (1, 1.0), (64, 64.0)))
FLAT = Curve(((0, 0.0), (1, 1.0), (64, 1.5)))  # hardly better than a single node
HOUR_S = SHIPPED.plan.patience_s


def gang(
    job_id: int, least: int, most: int = 8, on: int = 0, waited_s: Optional[float] = None
) -> MalleableJob:
    """A job that has run for hours on so many nodes, or has waited since its submission."""
    request = make_request(least, most)
    began = {"eligible": after(-9001), "start": after(-9000), "limit": span(9400)}
    fragments = (
        make_fragment(i, RUNNING, {f"j{job_id}n{i}"}, job_id, request=request, **began)
        for i in range(on)
    )
    job = make_job(*fragments, held=most - on, job_id=job_id, request=request)
    return job if waited_s is None else replace(job, submitted=after(-waited_s))


def nodes_of(*jobs: MalleableJob, free: int) -> list[Node]:
    busy = sorted(name for job in jobs for name in job.nodes)
    named = [make_node(name, NodeState.BUSY) for name in busy]
    return [*named, *(make_node(f"free{i}") for i in range(free))]


def sizes(
    *jobs: MalleableJob, free: int = 0, chosen: Settings = SHIPPED, **curves: Curve
) -> list[int]:
    known = {int(name[1:]): curve for name, curve in curves.items()}
    seen = make_snapshot(*jobs, nodes=nodes_of(*jobs, free=free), curves=known)
    return [job.nodes_planned for job in plan_for(seen, chosen).jobs]


def test_a_wide_job_has_its_minimum_before_a_better_job_has_more() -> None:
    assert sizes(gang(8, 1), gang(9, 6), free=8, j8=LINEAR, j9=FLAT) == [2, 6]


def kept(*jobs: MalleableJob, chosen: Settings = SHIPPED, **curves: Curve) -> list[int]:
    """The nodes of all jobs but the last. The last job gets their nodes once they have left
    them.
    """
    return sizes(*jobs, chosen=chosen, **curves)[:-1]


def test_a_running_job_makes_room_for_a_minimum() -> None:
    assert kept(gang(8, 1, on=8), gang(9, 4), j8=LINEAR, j9=FLAT) == [4]


def test_a_running_job_stays_where_minimums_compete() -> None:
    assert kept(gang(8, 4, on=4), gang(9, 4, waited_s=HOUR_S / 2)) == [4]


def test_a_job_that_makes_room_is_given_the_reason() -> None:
    seen = [gang(8, 4, on=4), gang(9, 4, waited_s=HOUR_S + 1)]
    plan = plan_for(make_snapshot(*seen, nodes=nodes_of(*seen, free=0)))
    assert noticed(plan) == dict.fromkeys(range(4), Why.BETTER_USE)  # not that it has too few


def finished_pool(job_id: int, on: int, end_s: float = 100) -> MalleableJob:
    """A pool whose workers all report that all work is done, and go on."""
    request = replace(make_request(1, on), engine="pool")
    fragments = (
        make_fragment(i, RUNNING, {f"j{job_id}n{i}"}, job_id, request=request, said=Said.FINISHED,
                      end=after(end_s))
        for i in range(on)
    )  # fmt: skip
    return make_job(*fragments, job_id=job_id, request=request)


@pytest.mark.parametrize("waited_s", [HOUR_S / 2, HOUR_S + 1])
def test_scripts_of_finished_jobs_end_for_a_job_past_its_patience(waited_s: float) -> None:
    jobs = finished_pool(8, 4), gang(9, 4, waited_s=waited_s)
    plan = plan_for(make_snapshot(*jobs, nodes=nodes_of(*jobs, free=0)))
    is_renewed = waited_s < HOUR_S
    assert renewed(plan) == (set(range(4)) if is_renewed else set())
    assert any(r.why is Why.GIVEN_BACK for r in plan.jobs[0].reasons) is not is_renewed


def test_scripts_of_finished_jobs_end_above_the_ceiling() -> None:
    job = finished_pool(8, 4)
    seen = make_snapshot(job, nodes=nodes_of(job, free=0))
    for most, kept_ in ((3, set()), (4, set(range(4)))):
        assert renewed(plan_for(seen, replace(SHIPPED, mode=Mode(max_nodes=most)))) == kept_


def held(job: MalleableJob) -> MalleableJob:
    fragments = tuple(replace(f, reason="JobHeldAdmin") for f in job.fragments)
    return replace(job, fragments=fragments)


@pytest.mark.parametrize(
    ("waits", "chosen"),
    [
        (held(gang(9, 4, waited_s=HOUR_S + 1)), SHIPPED),
        (gang(9, 5, waited_s=HOUR_S + 1), SHIPPED),  # there are four nodes in all
        (replace(gang(9, 4, waited_s=HOUR_S + 1), needs=Needs(features="gpu")), SHIPPED),
        (gang(9, 4, waited_s=50 * HOUR_S), replace(SHIPPED, plan=Planning(patience_s=0))),
    ],
    ids=["held", "too wide", "elsewhere", "without patience"],
)
def test_scripts_of_finished_jobs_go_on_if_the_waiting_job_could_not_start(
    waits: MalleableJob, chosen: Settings
) -> None:
    jobs = finished_pool(8, 4), waits
    plan = plan_for(make_snapshot(*jobs, nodes=nodes_of(*jobs, free=0)), chosen)
    assert renewed(plan) == set(range(4))


def test_scripts_of_finished_jobs_end_for_a_pool_without_a_minimum() -> None:
    pool = gang(9, 1, waited_s=HOUR_S + 1)
    request = replace(pool.request, engine="pool", min_nodes=0)
    fragments = tuple(replace(f, mark=replace(f.mark, request=request)) for f in pool.fragments)
    jobs = finished_pool(8, 4), replace(pool, request=request, fragments=fragments)
    assert not renewed(plan_for(make_snapshot(*jobs, nodes=nodes_of(*jobs, free=0))))


def test_the_last_lease_of_a_finished_job_is_also_cut_to_its_hole() -> None:
    jobs = finished_pool(8, 4, end_s=330), gang(9, 4, waited_s=HOUR_S + 1)
    names = frozenset(n for job in jobs for n in job.nodes)
    wall = Reservation("maint", after(370), after(9000), names)
    plan = plan_for(make_snapshot(*jobs, nodes=nodes_of(*jobs, free=0), reservations=(wall,)))
    assert renewed(plan) == set(range(4))


def test_a_job_past_its_patience_comes_first() -> None:
    assert kept(gang(8, 4, on=4), gang(9, 4, waited_s=HOUR_S + 1)) == [0]
    never = replace(SHIPPED, plan=replace(SHIPPED.plan, patience_s=0))
    assert kept(gang(8, 4, on=4), gang(9, 4, waited_s=HOUR_S + 1), chosen=never) == [4]


def began(job: MalleableJob, *ago_s: float) -> MalleableJob:
    """The same job, its first fragments so many seconds old."""
    later = [replace(f, start=after(-s)) for f, s in zip(job.fragments, ago_s)]
    return replace(job, fragments=(*later, *job.fragments[len(later) :]))


def test_a_job_that_has_just_begun_stays() -> None:
    """Otherwise each waiting job would oust the job before it, as soon as that job has started."""
    waits = gang(9, 4, waited_s=4 * HOUR_S)
    assert kept(began(gang(8, 4, on=4), HOUR_S - 1, 60), waits) == [0]  # some have run for long
    assert kept(began(gang(8, 4, on=4), *[HOUR_S - 1] * 4), waits) == [4]
    narrow = began(gang(8, 3, most=3, on=3), 60, 60, 60)
    assert sizes(narrow, waits, free=1)[:-1] == [3]
    assert kept(began(gang(8, 1, on=8), *[60] * 8), waits) == [4]  # only the minimum has a turn


@pytest.mark.parametrize(("weight", "stays"), [(1.0, 0), (0.6, 0), (0.1, 4)])
def test_patience_weighs_as_the_job_does(weight: float, stays: int) -> None:
    """After four hours of waiting. A job of little weight never takes the place of a heavy job."""
    chosen = replace(SHIPPED, plan=replace(SHIPPED.plan, objective="throughput"))
    slow = Curve(((0, 0.0), (1, weight), (64, 64 * weight)))
    jobs = gang(8, 4, on=4), gang(9, 4, waited_s=4 * HOUR_S)
    assert kept(*jobs, chosen=chosen, j8=LINEAR, j9=slow) == [stays]


def test_a_wide_job_displaces_narrow_jobs_in_time() -> None:
    narrow = [gang(i, 1, most=1, on=1) for i in range(10, 14)]
    assert kept(*narrow, gang(9, 4, waited_s=HOUR_S / 2)) == [1, 1, 1, 1]
    assert kept(*narrow, gang(9, 4, waited_s=HOUR_S + 1)) == [0, 0, 0, 0]


def test_a_narrow_job_displaces_a_wide_job_in_the_end() -> None:
    """Its single node is worth less than four nodes, so without a limit it would wait for
    their end.
    """
    wide = gang(8, 4, on=4)
    assert kept(wide, gang(9, 1, waited_s=4 * HOUR_S - 1)) == [4]
    assert kept(wide, gang(9, 1, waited_s=4 * HOUR_S + 1)) == [0]
    just_begun = began(wide, *[60] * 4)
    narrow = [gang(i, 1, most=1, waited_s=5 * HOUR_S) for i in range(9, 13)]
    assert sizes(just_begun, *narrow)[0] == 4  # not even for four of them
    assert sizes(wide, *narrow)[0] == 0


def test_a_job_that_waits_for_missing_nodes_takes_only_its_turn() -> None:
    """A job that can never start does not keep the others from their minimum."""
    jobs = gang(8, 4, on=4), gang(9, 1, waited_s=HOUR_S), gang(10, 64, 64, waited_s=HOUR_S)
    seen = make_snapshot(*jobs, nodes=nodes_of(*jobs, free=0))
    hasty = replace(SHIPPED, plan=replace(SHIPPED.plan, patience_s=200))
    turns = [replace(seen, now=seen.now + timedelta(seconds=50 * n)) for n in range(4)]
    assert [plan_for(look, hasty).jobs[0].nodes_planned for look in turns].count(0) == 2


def test_a_wide_job_comes_back_after_the_narrow_job_s_turn() -> None:
    narrow, wide = gang(8, 1, most=1, on=1), gang(9, 4, waited_s=HOUR_S + 1)
    assert sizes(began(narrow, 60), wide, free=3)[0] == 1
    assert sizes(narrow, wide, free=3)[0] == 0


def test_a_job_without_weight_claims_no_nodes() -> None:
    """A job without weight in a site's own objective waits until no other job wants the nodes."""
    chosen = replace(SHIPPED, plan=replace(SHIPPED.plan, objective="throughput"))
    idle = Curve(((0, 0.0), (1, 0.0)))
    assert sizes(gang(8, 1), gang(9, 1), free=4, chosen=chosen, j8=LINEAR, j9=idle) == [4, 0]


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_no_job_has_an_extra_node_that_another_lacks_to_start(data: st.DataObject) -> None:
    free = data.draw(st.integers(1, 12))
    jobs, curves = [], {}
    for job_id in range(8, 8 + data.draw(st.integers(2, 4))):
        jobs.append(gang(job_id, data.draw(st.integers(1, 5))))
        steps = sorted((data.draw(st.floats(0.05, 1.0)) for _ in range(8)), reverse=True)
        curves[f"j{job_id}"] = Curve(tuple((n, sum(steps[:n])) for n in range(9)))
    planned_sizes = sizes(*jobs, free=free, **curves)
    least = [job.request.min_nodes for job in jobs]
    extra = sum(size - need for size, need in zip(planned_sizes, least) if size)
    left = free - sum(planned_sizes)
    assert all(size or left + extra < need for size, need in zip(planned_sizes, least))


def test_the_time_for_which_a_job_has_waited() -> None:
    ground = Ground(make_snapshot(), SHIPPED)

    def seconds(job: MalleableJob) -> float:
        return waited(ground, job).total_seconds()

    job = gang(8, 2, waited_s=5_000)
    assert seconds(job) == 5_000
    back_s = ground.slurm.requeue_wait.total_seconds()
    noticed = make_fragment(0, job_id=8, noticed=after(-900))
    preempted = make_fragment(1, job_id=8, eligible=after(back_s - 300))
    assert seconds(replace(job, fragments=(noticed, *job.fragments[1:]))) == 900
    assert seconds(replace(job, fragments=(noticed, preempted))) == 300
    assert seconds(replace(job, submitted=after(60))) == 0  # the clock was set back
    dependent = make_fragment(0, job_id=8, depended=after(-700))
    assert seconds(replace(job, fragments=(dependent, *job.fragments[1:]))) == 700
