"""The time limit of the allocator, and the best answer known when the time is up.

The clock of these tests counts the functions that Python calls, so that a busy host changes
nothing.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

import slurm_hooks.allocation.allocate as allocate_module
import slurm_hooks.allocation.solvers.milp as milp_module
import slurm_hooks.allocation.solvers.prices as prices_module
from counted_work import counting
from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.problem import (
    Allocation,
    JobAsk,
    Limits,
    NodeClass,
    OutOfTime,
    Problem,
)
from slurm_hooks.allocation.value import held_counts, infeasibility, value
from slurm_hooks.model import Curve, Solve, SolveStatus

SIZES = [1, 2, 4, 8, 16, 32, 64]


def machine(jobs: int, classes: int) -> Problem:
    """Every job holds a node, and wants most classes. Their holes end at many moments."""
    holes = tuple(NodeClass(jobs, math.inf if c % 3 else 60.0 * (c + 1)) for c in range(classes))
    asks = tuple(
        JobAsk(
            name=f"job{at:03}",
            min_nodes=1 + at % 3,
            max_nodes=64,
            curve=Curve(
                ((0, 0.0), *((n, n / (1 + 0.002 * (1 + at % 7) * (n - 1))) for n in SIZES))
            ),
            held=tuple(3 if c == at % classes else 0 for c in range(classes)),
            usable=tuple((c + at) % 5 > 0 for c in range(classes)),
            grow_s=18,
            shrink_s=12,
        )
        for at in range(jobs)
    )
    return Problem(asks, holes, 3600.0)


@pytest.mark.parametrize("is_large", [False, True], ids=["prices", "too large for prices"])
@pytest.mark.parametrize("most", [100_000, 250_000])
def test_no_part_of_the_search_runs_on_when_the_time_is_up(
    is_large: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The greedy search, the first look at the market and the building of a linear programme had no
    clock: a limit of one second took up to 33."""
    problem = machine(120, 12)
    if is_large:
        monkeypatch.setattr(allocate_module, "LARGEST_MENU", 0)
    with counting() as calls:
        allocation = allocate(problem, Limits(most, gap=0), clock=lambda: calls[0])
        used = calls[0]
    assert used <= 1.5 * most
    assert "out of time" in allocation.solve.reason
    assert infeasibility(problem, allocation.counts) == ""
    assert value(problem, allocation.counts) >= value(problem, held_counts(problem))


def test_a_linear_programme_that_finds_less_than_its_start_leaves_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prices_module, "MOST_STEPS", 0)  # it proves nothing
    problem = machine(20, 4)
    by_prices = allocate(problem, Limits(60, gap=0), "prices")
    greedy = allocate(problem, Limits(60, gap=0), "greedy")
    assert by_prices.solve.value > greedy.solve.value + 1

    def gets_lost(problem: Problem, *_: object) -> Allocation:
        return Allocation(held_counts(problem), Solve(SolveStatus.INCUMBENT, "highs"))

    monkeypatch.setattr(milp_module, "solve_milp", gets_lost)
    allocation = allocate(problem, Limits(60, gap=0))
    assert allocation.counts == by_prices.counts
    assert "prices did better" in allocation.solve.reason


def test_no_search_begins_when_building_took_all_the_time() -> None:
    """HiGHS takes a negative time limit for none."""
    clock = iter([0.0, 0.0, 0.0, 9.0])  # the start, each of two jobs, the end of building
    with pytest.raises(OutOfTime):
        milp_module.solve_milp(machine(2, 3), Limits(10.0), seconds=lambda: next(clock))


def test_classes_that_did_not_fit_together_leave_time_for_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dearest job wants all nodes, and has died on one. A search takes all its time."""
    now = 0.0
    choose = allocate_module._choose

    def search(problem: Problem, limits: Limits, solver: str, watch: Any) -> Allocation:
        nonlocal now
        answer = choose(problem, limits, solver, watch)
        now += watch.left_s()
        return answer

    asks = tuple(
        JobAsk(
            name=f"job{at:02}",
            min_nodes=1,
            max_nodes=30,
            curve=Curve(((0, 0.0), (1, 1.0), (30, 30.0))),
            weight=1.0 if at else 9.0,
            held=(0, 0),
            usable=(True, at > 0),
        )
        for at in range(20)
    )
    problem = Problem(asks, (NodeClass(29, math.inf), NodeClass(1, math.inf)), 3600.0)
    monkeypatch.setattr(allocate_module, "_choose", search)
    allocation = allocate(problem, Limits(seconds=16.0), clock=lambda: now)
    assert allocation.counts[0] == (29, 0)
    assert sum(map(sum, allocation.counts)) == 30
