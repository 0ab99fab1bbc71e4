"""What newcomers put at risk, and what becomes of it in an allocation."""

from __future__ import annotations

import math

import pytest

from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.curves import prior
from slurm_hooks.allocation.problem import JobAsk, NodeClass, Problem
from slurm_hooks.allocation.risk import at_risk, newcomer_s, stay_s

CURVE = prior(max_nodes=16)


@pytest.mark.parametrize(
    ("open_nodes", "taken", "seconds"),
    [(80, 0, math.inf), (80, 70, 1024), (80, 80, 1024), (0, 10, 64), (5_000, 1, 2**22)],
)
def test_how_long_nodes_stay_is_known_by_its_order(open_nodes, taken, seconds) -> None:
    assert stay_s(open_nodes, taken) == seconds


def test_the_charge_follows_hits_and_hazard_up_to_half_the_look_ahead() -> None:
    assert newcomer_s(600.0, 120.0, math.inf) == 0
    assert newcomer_s(0.0, 120.0, 64.0) == 0
    assert newcomer_s(1.0, 120.0, 1024.0) == pytest.approx(0.11, abs=0.01)
    assert newcomer_s(600.0, 120.0, 8192.0) == pytest.approx(8.7, abs=0.1)
    assert newcomer_s(600.0, 120.0, 1024.0) == 60.0
    assert newcomer_s(99_999.0, 120.0, 64.0) == 60.0


def ask(name: str, held: int, hit_s: float) -> JobAsk:
    job = JobAsk(name, 1, 16, CURVE, (held,), (True,), grow_s=0.3, shrink_s=0.35)
    return at_risk(job, newcomer_s(hit_s, 120.0, 512.0))


@pytest.mark.parametrize("solver", ["auto", "prices", "milp", "greedy"])
def test_volatile_nodes_go_to_whom_they_cost_nothing(solver: str) -> None:
    jobs = (ask("dear", 4, 600.0), ask("cheap", 8, 1.0))
    found = allocate(Problem(jobs, (NodeClass(13),)), solver=solver)
    assert found.counts == ((4,), (9,))


@pytest.mark.parametrize("solver", ["auto", "prices", "milp", "greedy"])
def test_a_job_with_dear_hits_may_always_double(solver: str) -> None:
    free = Problem((ask("dear", 4, 600.0),), (NodeClass(5),))
    assert allocate(free, solver=solver).counts == ((4,),)
    assert allocate(Problem(free.jobs, (NodeClass(8),)), solver=solver).counts == ((8,),)
    start = Problem((ask("dear", 0, 600.0),), (NodeClass(1),))
    assert allocate(start, solver=solver).counts == ((1,),)
