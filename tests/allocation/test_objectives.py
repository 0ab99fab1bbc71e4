"""The preference of each objective, and that no objective can stop a tick."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from build import make_job, make_nodes, make_snapshot, no_clock
from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.curves import prior
from slurm_hooks.allocation.objectives import (
    OBJECTIVES,
    JobFacts,
    Objective,
    Worth,
    weigh,
)
from slurm_hooks.allocation.problem import JobAsk, NodeClass, Problem
from slurm_hooks.model import Curve, MalleableJob, Snapshot, Why
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.report.why import note_text
from slurm_hooks.settings.values import Mode, Settings, parse

FAST = Curve(((0, 0.0), (1, 1000.0), (8, 5000.0)))
SLOW = Curve(((0, 0.0), (1, 10.0), (8, 79.0)))


def facts(curve: Curve = SLOW, **changes: object) -> JobFacts:
    return replace(JobFacts("7", curve, 1, 1, 8), **changes)  # type: ignore[arg-type]


def split(objective: str, nodes: int, *jobs: JobFacts) -> list[int]:
    """The sizes of jobs under the objective on so many nodes."""
    asks = []
    for at, job in enumerate(jobs):
        worth, fault = weigh(OBJECTIVES[objective], job)
        assert fault == ""
        ask = JobAsk(f"job{at}", 1, 8, worth.curve, (0,), (True,), weight=worth.weight)
        asks.append(ask)
    allocation = allocate(Problem(tuple(asks), (NodeClass(nodes),)))
    return [sum(row) for row in allocation.counts]


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


def test_a_site_may_choose_its_weights() -> None:
    def urgent(job: JobFacts) -> Worth:
        return Worth(9.0 if job.user == "ada" else 1.0, job.curve)

    assert weigh(urgent, facts(user="ada")) == (Worth(9.0, SLOW), "")


def broken(job: JobFacts) -> Worth:
    raise KeyError(job.user)


def leaving(job: JobFacts) -> Worth:
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        (broken, "KeyError"),
        (leaving, "failed: SystemExit: 0"),
        (lambda job: 3, "not a Worth"),
        (lambda job: Worth(math.nan, job.curve), "weight nan"),
        (lambda job: Worth(-1.0, job.curve), "weight -1"),
        (lambda job: Worth("1", job.curve), "failed: TypeError"),
    ],
)
def test_a_bad_objective_is_reported_and_replaced(objective: object, said: str) -> None:
    worth, fault = weigh(objective, facts())  # type: ignore[arg-type]
    assert worth == Worth(1.0, SLOW)
    assert said in fault


# In a whole plan.


def with_priority(job: MalleableJob, priority: int) -> MalleableJob:
    """The job, with the priority that Slurm gave its first fragment before the hold."""
    first, *others = job.fragments
    first = replace(first, mark=replace(first.mark, priority=priority))
    return replace(job, fragments=(first, *others))


def two_jobs(**changes: object) -> Snapshot:
    """Two jobs of four held fragments each, of unequal importance to Slurm, and six free nodes."""
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


def test_plan_reports_a_broken_objective() -> None:
    plan = make_plan(two_jobs(), Settings(mode=Mode("on")), no_clock, broken)
    assert [note_text(note) for note in plan.notes if note.why is Why.OBJECTIVE] == [
        "job 7: the objective failed: KeyError: 'nobody'",
        "job 8: the objective failed: KeyError: 'nobody'",
    ]
    assert sum(job.nodes_planned for job in plan.jobs) == 6
