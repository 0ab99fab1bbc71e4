"""One way in for everybody who wants nodes shared out: picks a solver and checks its answer.

Whatever a solver does, the answer that leaves here is allowed, worth no less than that of the
greedy search and than changing nothing, and "no answer" never turns into "release everything".
This module must not know where the problem comes from. The clock it is given only times the
search; no decision depends on it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from slurm_hooks.core.dynamic import TooLarge, solve_dynamic
from slurm_hooks.core.greedy import solve_greedy
from slurm_hooks.core.merge import merge
from slurm_hooks.core.milp import solve_milp
from slurm_hooks.core.problem import Allocation, Limits, Problem
from slurm_hooks.core.value import (
    Counts,
    contradiction,
    held_counts,
    infeasibility,
    is_feasible,
    value,
)
from slurm_hooks.model import Solve, SolveStatus

SOLVERS = ("auto", "dynamic", "milp", "highs", "cbc", "greedy")
DEFAULT_LIMITS = Limits()


def allocate(
    problem: Problem,
    limits: Limits = DEFAULT_LIMITS,
    solver: str = "auto",
    clock: Callable[[], float] = time.monotonic,
) -> Allocation:
    """Nodes by (job, class) for the problem, and how they were found.

    `auto` takes the dynamic programme where all nodes are alike to the jobs, otherwise the best
    MILP solver installed. A solver that fails is replaced by the greedy search; `Solve` says so.
    The same problem gets the same answer whatever the order of its jobs, except that a MILP solver
    that runs out of time stops where it is. Raises ValueError for a solver of no such name.
    """
    if solver not in SOLVERS:
        raise ValueError(f"no solver {solver!r}, there are {', '.join(SOLVERS)}")
    start = clock()
    found = _by_name(problem, limits, solver)
    return replace(found, solve=replace(found.solve, seconds=clock() - start))


def _by_name(problem: Problem, limits: Limits, solver: str) -> Allocation:
    """Solve with the jobs in order of their names, so that ties do not depend on the caller."""
    order = sorted(range(len(problem.jobs)), key=lambda at: problem.jobs[at].name)
    found = _solve(replace(problem, jobs=tuple(problem.jobs[at] for at in order)), limits, solver)
    counts = dict(zip(order, found.counts))
    return replace(found, counts=tuple(counts[at] for at in range(len(order))))


def _solve(problem: Problem, limits: Limits, solver: str) -> Allocation:
    held = held_counts(problem)
    fault = contradiction(problem)
    if fault:
        return Allocation(held, Solve(SolveStatus.UNCHANGED, reason=f"impossible problem: {fault}"))
    if not problem.jobs:
        return Allocation(held, Solve(reason="no jobs"))
    if not any(node_class.capacity for node_class in problem.classes):
        return Allocation(held, Solve(reason="no nodes"))
    merged = merge(problem)
    small = merged.problem
    floor = solve_greedy(small)
    chosen = _best(small, _ask(small, limits, solver, floor), floor)
    counts = merged.split(chosen.counts)
    fault = infeasibility(problem, counts)
    if fault:
        return Allocation(held, replace(chosen.solve, status=SolveStatus.UNCHANGED, reason=fault))
    return replace(chosen, counts=counts)


def _ask(problem: Problem, limits: Limits, solver: str, floor: Counts) -> Allocation:
    """The answer of the solver that was asked for or fits the problem; `floor` is the fallback."""
    shape = f"{len(problem.jobs)} jobs, {len(problem.classes)} classes"
    if solver == "greedy":
        return _greedy(problem, floor, "asked for")
    if solver == "dynamic" or (solver == "auto" and len(problem.classes) == 1):
        try:
            return _dynamic(problem, shape)
        except (TooLarge, ValueError) as error:
            if solver == "dynamic":
                return _greedy(problem, floor, f"dynamic programme: {error}")
            shape = f"{shape}; dynamic programme: {error}"
    name = "milp" if solver == "auto" else solver
    try:
        found = solve_milp(problem, limits, name, floor)
    except Exception as error:  # whatever PuLP or a solver binary throws, the tick goes on
        return _greedy(problem, floor, f"{name} failed: {type(error).__name__}: {error}")
    reason = f"{shape}; {found.solve.reason}" if found.solve.reason else shape
    return replace(found, solve=replace(found.solve, reason=reason))


def _dynamic(problem: Problem, reason: str) -> Allocation:
    counts = solve_dynamic(problem)
    worth = value(problem, counts)
    return Allocation(
        counts, Solve(SolveStatus.OPTIMAL, "dynamic", reason, value=worth, bound=worth)
    )


def _greedy(problem: Problem, counts: Counts, reason: str) -> Allocation:
    solve = Solve(SolveStatus.INCUMBENT, "greedy", reason, bound=math.inf)
    return Allocation(counts, replace(solve, value=value(problem, counts)))


def _best(problem: Problem, found: Allocation, floor: Counts) -> Allocation:
    """The solver's answer, unless it is not allowed or another one is worth more.

    Changing nothing wins a draw, the solver's answer the next. A solver without an answer said
    "unchanged"; the greedy search may still know better.
    """
    held = held_counts(problem)
    solve, fault = found.solve, infeasibility(problem, found.counts)
    if fault:
        reason = f"{solve.reason}; answer refused: {fault}"
        solve = replace(solve, status=SolveStatus.UNCHANGED, reason=reason)
    worth = {c: value(problem, c) for c in (held, found.counts, floor) if is_feasible(problem, c)}
    if not worth:
        return Allocation(held, solve)
    best = max(worth.values())
    slack = 1e-9 * max(1.0, abs(best))
    counts = next(c for c in worth if worth[c] >= best - slack)
    solve = replace(solve, value=worth[counts], bound=max(solve.bound, worth[counts]))
    if counts in (held, found.counts):
        return Allocation(counts, solve)
    solve = replace(solve, reason=f"{solve.reason}; the greedy search did better")
    if solve.status is SolveStatus.UNCHANGED:
        solve = replace(solve, status=SolveStatus.INCUMBENT, solver="greedy", bound=math.inf)
    return Allocation(counts, solve)
