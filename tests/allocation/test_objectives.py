"""What each objective prefers, and that nobody's objective can stop a tick."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from allocator_problems import agree, problems, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st

from build import after, make_fragment, make_job, make_node, make_nodes, make_snapshot, no_clock
from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.curves import prior
from slurm_hooks.allocation.objectives import (
    OBJECTIVES,
    JobFacts,
    Objective,
    Record,
    Worth,
    amortised,
    restart_factor,
    weigh,
)
from slurm_hooks.allocation.problem import JobAsk, NodeClass, Problem
from slurm_hooks.allocation.value import Row, is_idle, periods, progress, row_value
from slurm_hooks.model import Curve, FragmentState, MalleableJob, NodeState, Snapshot
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.settings import Settings, parse

FAST = Curve(((0, 0.0), (1, 1000.0), (8, 5000.0)))
SLOW = Curve(((0, 0.0), (1, 10.0), (8, 79.0)))


def facts(curve: Curve = SLOW, **changes: object) -> JobFacts:
    return replace(JobFacts("7", curve, 1, 1, 8), **changes)  # type: ignore[arg-type]


def split(objective: str, nodes: int, *jobs: JobFacts) -> list[int]:
    """Sizes that the objective leads to on so many nodes."""
    asks = []
    for at, job in enumerate(jobs):
        worth, fault = weigh(OBJECTIVES[objective], job)
        assert fault == ""
        ask = JobAsk(f"job{at}", 1, 8, worth.curve, (0,), (True,), weight=worth.weight)
        asks.append(ask)
    found = allocate(Problem(tuple(asks), (NodeClass(nodes),)))
    return [sum(row) for row in found.counts]


def test_throughput_starves_the_slow_model_and_speedup_does_not() -> None:
    assert split("throughput", 8, facts(FAST), facts(SLOW)) == [8, 0]
    assert split("speedup", 8, facts(FAST), facts(SLOW)) == [1, 7]


def test_efficiency_stops_at_the_knee() -> None:
    """Amdahl with serial fraction s: S * E is greatest at 1/s - 1 nodes, here 7."""
    exact = Curve(((0, 0.0), *((n, n / (1 + 0.125 * (n - 1))) for n in range(1, 9))))
    assert split("efficiency", 8, facts(exact)) == [7]
    assert split("speedup", 8, facts(exact)) == [8]


def test_priority_decides_between_equals() -> None:
    low, high = facts(prior(0.05, 8), priority=0.5), facts(prior(0.05, 8), priority=1.5)
    sizes = split("priority", 8, low, high)
    assert sizes[1] > sizes[0]


def test_a_site_may_weigh_as_it_likes() -> None:
    def urgent(job: JobFacts) -> Worth:
        return Worth(9.0 if job.user == "ada" else 1.0, job.curve)

    assert weigh(urgent, facts(user="ada")) == (Worth(9.0, SLOW), "")


def broken(job: JobFacts) -> Worth:
    raise KeyError(job.user)


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        (broken, "KeyError"),
        (lambda job: 3, "not a Worth"),
        (lambda job: Worth(math.nan, job.curve), "weight nan"),
        (lambda job: Worth(-1.0, job.curve), "weight -1"),
        (lambda job: Worth("1", job.curve), "failed: TypeError"),
    ],
)
def test_a_bad_objective_is_told_and_replaced(objective: object, said: str) -> None:
    worth, fault = weigh(objective, facts())  # type: ignore[arg-type]
    assert worth == Worth(1.0, SLOW)
    assert said in fault


FACTORS = [
    (Record(1000, 0), 20, 1000 / 1020),
    (Record(1000, 10), 20, 800 / 1020),
    (Record(0, 0), 20, 0.05),
    (Record(100, 50), 20, 0.05),
    (Record(0, 0), 0, 1.0),
]


@pytest.mark.parametrize(("record", "restart_s", "expected"), FACTORS)
def test_restart_factor(record: Record, restart_s: float, expected: float) -> None:
    assert restart_factor(record, restart_s) == pytest.approx(expected)


def _plain(job: JobAsk, problem: Problem, row: Row) -> float:
    """Progress over the look-ahead, changes and starts for free."""
    free = replace(job, grow_s=0.0, shrink_s=0.0, start_s=0.0)
    return row_value(free, periods(problem), row)


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(0, 5000), st.integers(0, 20))
def test_amortised_is_the_factor_on_every_change(
    problem: Problem, age_s: int, restarts: int
) -> None:
    """Differences between rows are those of Sia's rule: factor times progress, except to stay."""
    record = Record(age_s, restarts)
    priced = amortised(problem, [record] * len(problem.jobs))
    for job, other in zip(problem.jobs, priced.jobs):
        if is_idle(job) or progress(job, min(job.size, job.max_nodes)) <= 0:
            assert other == job
            continue
        factor = restart_factor(record, job.grow_s)
        stay = _plain(job, problem, job.held)
        if job.size > job.max_nodes:
            continue
        for row in rows_of(problem, job):
            moved = sum(abs(n - h) for n, h in zip(row, job.held))
            if not moved:
                continue
            peace = 1e-3 * job.weight * moved
            expected = factor * (_plain(job, problem, row) + peace) - stay - factor * peace
            spans = periods(priced)
            got = row_value(other, spans, row) - row_value(other, spans, job.held)
            assert agree(got, expected)


# In a whole plan.


def with_priority(job: MalleableJob, priority: int) -> MalleableJob:
    """The job, with what Slurm gave its first fragment before it was held."""
    first, *others = job.fragments
    first = replace(first, mark=replace(first.mark, priority=priority))
    return replace(job, fragments=(first, *others))


def two_jobs(**changes: object) -> Snapshot:
    """Two jobs of four held fragments each, one more important to Slurm, and six free nodes."""
    low = with_priority(make_job(held=4, job_id=7), 1)
    high = with_priority(make_job(held=4, job_id=8), 1000)
    return make_snapshot(low, high, nodes=make_nodes(6), **changes)


def sizes(settings: Settings, objective: Objective | None = None) -> dict[int, int]:
    plan = make_plan(two_jobs(), settings, no_clock, objective)
    return {job.job_id: job.nodes_planned for job in plan.jobs}


def test_plan_follows_the_objective_of_the_settings() -> None:
    assert sizes(parse('[plan]\nobjective = "speedup"\n')) == {7: 3, 8: 3}  # equal shares
    assert sizes(parse('[plan]\nobjective = "priority"\n')) == {7: 2, 8: 4}


def test_plan_follows_a_sites_own_objective() -> None:
    def first(job: JobFacts) -> Worth:
        return Worth(9.0 if job.name == "7" else 1.0, job.curve)

    assert sizes(parse('[plan]\nobjective = "site"\n'), first) == {7: 4, 8: 2}


def test_plan_tells_of_a_broken_objective() -> None:
    plan = make_plan(two_jobs(), Settings(), no_clock, broken)
    assert [note for note in plan.notes if "objective failed" in note] == [
        "job 7: the objective failed: KeyError: 'nobody'",
        "job 8: the objective failed: KeyError: 'nobody'",
    ]
    assert sum(job.nodes_planned for job in plan.jobs) == 6


@pytest.mark.parametrize(("age_s", "grown"), [(3600, 2), (1, 1)])
def test_amortised_leaves_young_jobs_in_peace(age_s: float, grown: int) -> None:
    """One node held, one free: growth is worth it to an old job only."""
    running = make_fragment(0, FragmentState.RUNNING, ["n1"])
    job = replace(make_job(running, held=3), submitted=after(-age_s))
    seen = make_snapshot(job, nodes=(make_node("n1", NodeState.BUSY), make_node("n2")))
    plan = make_plan(seen, parse('[plan]\nrescale = "amortised"\ngrow_s = 60\n'), no_clock)
    assert plan.jobs[0].nodes_planned == grown
