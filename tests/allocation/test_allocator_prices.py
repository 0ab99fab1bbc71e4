"""Prices: every job's answer is its best, every bound holds, every answer is allowed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Optional

import pytest
from allocator_problems import agree, brute_force, priced, problems, rows_of, torn
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.problem import JobAsk, Limits, NodeClass, Problem
from slurm_hooks.allocation.solvers import milp as milp_module
from slurm_hooks.allocation.solvers.bids import Bidder, depths_of
from slurm_hooks.allocation.solvers.greedy import climb_from, solve_greedy
from slurm_hooks.allocation.solvers.market import Market
from slurm_hooks.allocation.solvers.milp import solve_milp
from slurm_hooks.allocation.solvers.prices import Groups
from slurm_hooks.allocation.value import (
    contradiction,
    infeasibility,
    periods,
    row_fault,
    row_value,
    value,
)
from slurm_hooks.model import Curve, SolveStatus

prices = st.lists(st.sampled_from([0.0, 1.0, 13.7, 40.0, 40.0, 90.0, 400.0]), min_size=3)


def order_of(problem: Problem, asked: list[float]) -> list[list[int]]:
    spans = periods(problem)
    depths = depths_of(spans, len(problem.classes))
    ranked = sorted(range(len(problem.classes)), key=asked.__getitem__)
    return [[c for c in ranked if depths[c] == depth] for depth in range(len(spans) + 1)]


@settings(max_examples=150, deadline=None)
@given(problems(), prices, st.booleans())
def test_a_bid_is_the_best_row(problem: Problem, asked: list[float], is_short: bool) -> None:
    """Compared with every row. With few nodes left, compared with rows that take at most so
    many.
    """
    asked = asked[: len(problem.classes)]
    spans = periods(problem)
    caps = [c.capacity for c in problem.classes]
    free = [cap // 2 for cap in caps] if is_short else None
    for job in problem.jobs:
        bid = Bidder(job, spans, caps).answer(asked, order_of(problem, asked), free)
        assert row_fault(job, bid.row) == ""
        paid = sum(p * n for p, n in zip(asked, bid.row))
        assert agree(bid.surplus, row_value(job, spans, bid.row) - paid)
        others = [
            row
            for row in rows_of(problem, job)
            if free is None or all(n - h <= f for n, h, f in zip(row, job.held, free))
        ]
        best = max(
            row_value(job, spans, row) - sum(p * n for p, n in zip(asked, row)) for row in others
        )
        assert agree(bid.surplus, best) or job.is_off_unit


@settings(max_examples=100, deadline=None)
@given(problems(), prices)
def test_any_prices_prove_a_bound(problem: Problem, asked: list[float]) -> None:
    market = Market(problem, solve_greedy(problem))
    assert market.ask(asked[: len(problem.classes)]).bound >= brute_force(problem) - 1e-6


@settings(max_examples=100, deadline=None)
@given(problems())
def test_search_is_allowed_and_between_greedy_and_bound(problem: Problem) -> None:
    start = solve_greedy(problem)
    market = priced(problem, 1e-9)
    best = brute_force(problem)
    assert infeasibility(problem, market.counts) == ""
    assert agree(market.value, value(problem, market.counts))
    assert value(problem, start) - 1e-9 <= market.value <= best + 1e-6
    assert market.bound >= best - 1e-6


def test_a_gang_that_is_not_completed_is_given_up() -> None:
    """Its single node alone would be an answer that is not allowed."""
    curve = Curve(((0, 0.0), (1, 0.125)))
    whole = JobAsk("whole", 4, 4, curve, held=(0, 1), usable=(True, True))
    other = JobAsk("other", 1, 2, Curve(((0, 0.0), (2, 0.125))), (0, 0), (True, True))
    problem = Problem((whole, other), (NodeClass(2), NodeClass(4)), ceiling_nodes=5)
    assert infeasibility(problem, priced(problem, 1e-9).counts) == ""


@settings(max_examples=100, deadline=None)
@given(problems(), st.sampled_from([1e-3, 1e-9]))
def test_the_allocator_keeps_its_claimed_gap(problem: Problem, gap: float) -> None:
    """On every small case: as good as brute force up to the gap, and never more than the bound."""
    allocation = allocate(problem, Limits(seconds=20, gap=gap))
    best = brute_force(problem)
    assert allocation.solve.status in {SolveStatus.OPTIMAL, SolveStatus.NOTHING}
    assert allocation.solve.bound >= best - 2e-6 or allocation.solve.status is SolveStatus.NOTHING
    assert allocation.solve.value >= best - gap * abs(allocation.solve.value) - 2e-6


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_small_problems_are_exact_without_a_milp_solver(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """The packages contain no solver, and a host may have no solver."""
    monkeypatch.setattr(milp_module, "solve_milp", missing)
    for seed in range(first, first + 20):
        allocation = allocate(torn(seed), Limits(gap=1e-9))
        assert agree(allocation.solve.value, brute_force(torn(seed))), seed
        assert allocation.solve.status in {SolveStatus.OPTIMAL, SolveStatus.NOTHING}


def missing(*_: object) -> None:
    raise LookupError("no solver milp on this host")


def amdahl(serial: float) -> Curve:
    sizes = [1, 2, 4, 8, 16, 32, 64]
    return Curve(((0, 0.0), *((n, n / (1 + serial * (n - 1))) for n in sizes)))


def machine(jobs: int, nodes: int, classes: int, sectors: int = 1) -> Problem:
    """Two jobs in three hold nodes. A class in two closes within the look-ahead."""
    holes = tuple(NodeClass(nodes // classes, math.inf if c % 2 else 40.0) for c in range(classes))
    asks = tuple(
        JobAsk(
            name=f"job{at:03}",
            min_nodes=1 + at % 3,
            max_nodes=64,
            curve=amdahl(0.002 * (1 + at % 7)),
            held=tuple(4 if at % 3 and c == at % classes else 0 for c in range(classes)),
            usable=tuple(c % sectors == at % sectors and (c + at) % 7 > 0 for c in range(classes)),
            grow_s=18,
            shrink_s=12,
        )
        for at in range(jobs)
    )
    return Problem(asks, holes)


@pytest.mark.parametrize("sectors", [1, 2])
@pytest.mark.parametrize("ceiling", [None, 140])
def test_prices_agree_with_the_milp(sectors: int, ceiling: Optional[int]) -> None:
    problem = replace(machine(20, 160, 4, sectors), ceiling_nodes=ceiling)
    assert contradiction(problem) == ""
    market = priced(problem, 1e-3)
    exact = solve_milp(problem, Limits(seconds=30, gap=1e-6))
    assert market.value <= exact.solve.value * (1 + 1e-6)
    assert market.bound >= exact.solve.value * (1 - 1e-6)
    assert market.gap <= 5e-3


def test_classes_that_the_same_jobs_want_share_a_price() -> None:
    problem = machine(40, 320, 8, sectors=2)
    groups = Groups(Market(problem, solve_greedy(problem)))
    assert sorted(map(sorted, groups.weights)) == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_many_jobs_and_classes_need_no_integer_programme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milp_module, "solve_milp", None)
    allocation = allocate(machine(120, 2400, 12))
    assert allocation.solve.solver == "prices"
    assert allocation.solve.status is SolveStatus.OPTIMAL
    assert allocation.solve.bound <= allocation.solve.value * 1.001


def test_out_of_time_the_best_so_far_is_returned_and_said() -> None:
    clock = iter([*[0.0] * 300, *[100.0] * 1000])  # late once the greedy search has ended
    problem = machine(30, 300, 6)
    allocation = allocate(problem, Limits(seconds=1, gap=1e-9), clock=lambda: next(clock))
    assert allocation.solve.status is SolveStatus.INCUMBENT
    assert "out of time" in allocation.solve.reason
    assert infeasibility(problem, allocation.counts) == ""
    assert allocation.solve.value >= value(problem, solve_greedy(problem)) - 1e-6


def test_prices_stand_in_for_a_milp_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("cbc: permission denied")

    monkeypatch.setattr(milp_module, "solve_milp", broken)
    allocation = allocate(machine(30, 300, 6), Limits(gap=0))
    assert allocation.solve.solver == "prices"
    assert allocation.solve.status is SolveStatus.INCUMBENT
    assert "permission denied" in allocation.solve.reason


@settings(max_examples=100, deadline=None)
@given(problems())
def test_climbing_from_an_answer_keeps_its_nodes(problem: Problem) -> None:
    counts = climb_from(problem, solve_greedy(problem))
    assert infeasibility(problem, counts) == ""
    assert value(problem, counts) >= value(problem, solve_greedy(problem)) - 1e-9
