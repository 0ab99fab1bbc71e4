"""The search among rows that prices leave open: the right rows, and the best answer from them."""

from __future__ import annotations

import math
from functools import partial

import pytest
from allocator_problems import agree, brute_force, priced, problems, rows_of, torn
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_hooks.allocation.problem import JobAsk, Limits, NodeClass, Problem
from slurm_hooks.allocation.solvers import prices as prices_module
from slurm_hooks.allocation.solvers.bids import Bidder
from slurm_hooks.allocation.solvers.finish import TooLarge, best_rows
from slurm_hooks.allocation.solvers.greedy import solve_greedy
from slurm_hooks.allocation.solvers.market import Market
from slurm_hooks.allocation.solvers.milp import solve_milp
from slurm_hooks.allocation.value import infeasibility, periods, row_value, value
from slurm_hooks.model import Curve

PRICES = st.lists(st.sampled_from([0.0, 1.0, 13.7, 40.0, 40.0, 90.0, 400.0]), min_size=3)
SLACK = 1e-6


@settings(max_examples=200, deadline=None)
@given(
    problems() | st.integers(0, 500).map(torn), PRICES, st.sampled_from([0.0, 0.3, 0.7, 0.95, 1])
)
def test_rows_with_a_small_loss_are_open(
    problem: Problem, asked: list[float], share: float
) -> None:
    """Compared with every allowed row, each with its surplus and no row twice."""
    prices = asked[: len(problem.classes)]
    spans = periods(problem)
    for job in problem.jobs:
        surpluses = {
            row: row_value(job, spans, row) - sum(p * n for p, n in zip(prices, row))
            for row in rows_of(problem, job)
        }
        low, high = min(surpluses.values()), max(surpluses.values())
        least = low + share * (high - low)
        bidder = Bidder(job, spans, [c.capacity for c in problem.classes])
        near_rows = [*bidder.near(prices, least - SLACK)]
        assert len(dict(near_rows)) == len(near_rows)
        assert all(agree(surplus, surpluses[row]) for row, surplus in near_rows)
        assert {row for row, s in surpluses.items() if s >= least} <= set(dict(near_rows))
        assert all(surpluses[row] >= least - 2 * SLACK for row, _ in near_rows)


@pytest.mark.parametrize("price", [1.0, 400.0])
def test_a_job_off_its_unit_has_two_rows(price: float) -> None:
    """The better row decides: it is kept or given up."""
    curve = Curve(((0, 0.0), (4, 4.0)))
    job = JobAsk("a", 1, 4, curve, held=(3,), usable=(True,), unit=2)
    bidder = Bidder(job, periods(Problem((job,), (NodeClass(4),))), [4])
    assert {row for row, _ in bidder.near([price], -1e9)} == {(0,), (3,)}


@pytest.mark.parametrize("classes", [1, 2, 3])
@settings(max_examples=100, deadline=None)
@given(st.data(), PRICES)
def test_the_best_rows_are_found_at_any_prices(
    classes: int, data: st.DataObject, asked: list[float]
) -> None:
    """The test has cases with and without minimums, ceilings and holes that end."""
    problem = data.draw(problems(most_classes=classes))
    market = Market(problem, solve_greedy(problem))
    bound = market.ask(asked[: len(problem.classes)]).bound
    best = brute_force(problem)
    supply = market.supply(market.proof.prices)
    rows = best_rows(partial(market.open_rows, most=5_000), supply, bound - best + SLACK, 1e6)
    assert rows is not None
    assert infeasibility(problem, tuple(rows)) == ""
    assert agree(value(problem, tuple(rows)), best)


@settings(max_examples=100, deadline=None)
@given(problems(), PRICES)
def test_no_row_is_better_than_the_best(problem: Problem, asked: list[float]) -> None:
    market = Market(problem, solve_greedy(problem))
    bound = market.ask(asked[: len(problem.classes)]).bound
    gap = bound - brute_force(problem) - SLACK
    supply = market.supply(market.proof.prices)
    assert best_rows(partial(market.open_rows, most=5_000), supply, gap, 1e6) is None


@settings(max_examples=100, deadline=None)
@given(problems())
def test_small_problems_are_solved_to_the_end(problem: Problem) -> None:
    market = priced(problem, 1e-9)
    assert agree(market.value, brute_force(problem))
    assert agree(market.bound, market.value)


@pytest.mark.parametrize("seed", [21, 33])
def test_a_dozen_jobs_and_more_are_solved_to_the_end(seed: int) -> None:
    problem = torn(seed, most_jobs=20, most_nodes=40)
    market = priced(problem, 1e-9)
    exact = solve_milp(problem, Limits(seconds=20, gap=1e-7))
    assert math.isclose(market.value, exact.solve.value, rel_tol=1e-6)
    assert agree(market.bound, market.value)


@pytest.mark.parametrize("limit", ["MOST_STEPS", "MOST_ROWS"])
def test_a_search_that_is_too_large_keeps_the_answer_of_prices(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    problem = torn(15)
    exact = priced(problem, 1e-9)
    monkeypatch.setattr(prices_module, limit, 0)
    market = priced(problem, 1e-9)
    assert value(problem, solve_greedy(problem)) <= market.value <= exact.value < market.bound


def test_rows_beyond_the_limit_are_not_listed() -> None:
    market = Market(torn(15), solve_greedy(torn(15)))
    market.ask([0.0] * len(market.caps))
    rows = sum(map(len, market.open_rows(1e9, 5_000)))
    with pytest.raises(TooLarge, match=f"more than {rows - 1} rows"):
        market.open_rows(1e9, rows - 1)
