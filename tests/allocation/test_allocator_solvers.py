"""All solvers against brute force on small problems, and against each other."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import pytest
from allocator_problems import agree, brute_force, problems
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.merge import merge
from slurm_hooks.allocation.problem import JobAsk, Limits, NodeClass, Problem
from slurm_hooks.allocation.solvers.finish import TooLarge
from slurm_hooks.allocation.solvers.greedy import solve_greedy
from slurm_hooks.allocation.solvers.knapsack import solve_knapsack
from slurm_hooks.allocation.solvers.milp import solve_milp
from slurm_hooks.allocation.value import (
    held_counts,
    infeasibility,
    is_feasible,
    value,
)
from slurm_hooks.model import Curve, SolveStatus

EXACT = Limits(seconds=20, gap=1e-9)


@settings(max_examples=150, deadline=None)
@given(problems(), st.sampled_from(["milp", "milp", "cbc"]))
def test_milp_returns_the_optimum(problem: Problem, name: str) -> None:
    allocation = solve_milp(problem, EXACT, name)
    assert infeasibility(problem, allocation.counts) == ""
    assert allocation.solve.status is SolveStatus.OPTIMAL
    assert math.isclose(value(problem, allocation.counts), brute_force(problem), abs_tol=2e-6)


@settings(max_examples=150, deadline=None)
@given(problems(most_classes=1))
def test_knapsack_returns_the_optimum(problem: Problem) -> None:
    counts = solve_knapsack(problem)
    assert infeasibility(problem, counts) == ""
    assert agree(value(problem, counts), brute_force(problem))


@settings(max_examples=100, deadline=None)
@given(problems())
def test_greedy_is_allowed_and_below_the_optimum(problem: Problem) -> None:
    counts = solve_greedy(problem)
    assert infeasibility(problem, counts) == ""
    assert value(problem, counts) <= brute_force(problem) + 1e-7


@settings(max_examples=100, deadline=None)
@given(problems())
def test_merging_classes_keeps_the_optimum(problem: Problem) -> None:
    merged = merge(problem)
    small = solve_greedy(merged.problem)
    counts, left = merged.split(small)
    assert not left
    assert infeasibility(problem, counts) == ""
    assert agree(value(problem, counts), value(merged.problem, small))
    assert agree(brute_force(problem), brute_force(merged.problem))
    assert merged.split(held_counts(merged.problem)) == (held_counts(problem), frozenset())


@settings(max_examples=150, deadline=None)
@given(problems())
def test_merging_classes_that_only_some_jobs_may_use_keeps_the_optimum(problem: Problem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slurm_hooks.allocation.merge.NEARLY", 1.0)
        allocation = allocate(problem, EXACT)
    assert infeasibility(problem, allocation.counts) == ""
    assert agree(value(problem, allocation.counts), brute_force(problem))


@settings(max_examples=80, deadline=None)
@given(problems(), st.sampled_from(["auto", "prices", "greedy"]), st.booleans())
def test_allocate_never_falls_below_greedy_or_status_quo(
    problem: Problem, solver: str, is_exact: bool
) -> None:
    allocation = allocate(problem, EXACT if is_exact else Limits(), solver)
    held = held_counts(problem)
    assert infeasibility(problem, allocation.counts) == ""
    assert agree(allocation.solve.value, value(problem, allocation.counts))
    assert allocation.solve.value <= allocation.solve.bound + 1e-6
    merged = merge(problem)
    floors = [value(merged.problem, solve_greedy(merged.problem))]
    floors += [value(problem, held)] if is_feasible(problem, held) else []
    assert allocation.solve.value >= max(floors) - 1e-6


def carried_out(problem: Problem) -> Problem:
    """The problem once its plan has been carried out."""
    counts = allocate(problem, EXACT).counts
    return replace(problem, jobs=tuple(replace(j, held=c) for j, c in zip(problem.jobs, counts)))


@settings(max_examples=80, deadline=None)
@given(problems())
def test_planning_again_settles(problem: Problem) -> None:
    """It may take several plans, since a row that is expensive to reach from here may be cheap from
    halfway.
    """
    for _ in range(4):
        problem = carried_out(problem)
    assert carried_out(problem) == problem


@settings(max_examples=40, deadline=None)
@given(problems(), st.randoms(use_true_random=False))
def test_order_of_jobs_does_not_matter(problem: Problem, random: object) -> None:
    order = list(range(len(problem.jobs)))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = replace(problem, jobs=tuple(problem.jobs[at] for at in order))
    straight, other = allocate(problem, EXACT), allocate(shuffled, EXACT)
    assert [straight.counts[at] for at in order] == list(other.counts)


def many_jobs(count: int, nodes: int) -> Problem:
    curve = Curve(((0, 0.0), (1, 1.0), (2, 1.9), (8, 6.0), (16, 9.0)))
    asks = tuple(
        JobAsk(
            name=f"job{at:02}",
            min_nodes=2 + at % 5,
            max_nodes=16,
            curve=curve,
            held=(at % 7 if at % 7 > 1 + at % 5 else 0,),
            usable=(True,),
            grow_s=10 + at,
            shrink_s=8 + at,
            weight=1 + at / 10,
        )
        for at in range(count)
    )
    return Problem(asks, (NodeClass(nodes),))


@pytest.mark.parametrize("nodes", [45, 70, 99, 147])
def test_knapsack_and_milp_agree_on_more_jobs(nodes: int) -> None:
    problem = many_jobs(20, nodes)
    exact = solve_knapsack(problem)
    assert is_feasible(problem, exact)
    by_milp = solve_milp(problem, Limits(seconds=20, gap=1e-7))
    assert math.isclose(value(problem, exact), by_milp.solve.value, rel_tol=1e-6)


def test_knapsack_gives_up_rather_than_run_for_hours() -> None:
    problem = many_jobs(20, 45)
    with pytest.raises(TooLarge):
        solve_knapsack(problem, most_steps=1)


ONE_SOLVE = """
from slurm_hooks.allocation.problem import Limits
from slurm_hooks.allocation.solvers.milp import find_backend
import pulp
model = pulp.LpProblem("x", pulp.LpMaximize)
model += pulp.LpVariable("n", 0, 3, "Integer")
model.solve(find_backend("NAME", Limits(5.0, 0.01))[1])
"""


@pytest.mark.parametrize("name", ["highs", "cbc"])
def test_a_solver_prints_no_text(name: str) -> None:
    """In a separate process, because C's output appears when the process ends."""
    if name == "highs":
        pytest.importorskip("highspy")
    argv = [sys.executable, "-c", ONE_SOLVE.replace("NAME", name)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=150, check=True)
    assert done.stdout + done.stderr == ""
