"""The single entry to the allocator: picks a solver and checks its answer.

Whatever a solver does, the answer returned here is allowed. It is worth no less than the answer
that the solver began from, and no less than no change. "No answer" never turns into "release
everything". The clock only times the search, and no decision depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from slurm_hooks.allocation.merge import merge
from slurm_hooks.allocation.problem import Allocation, Limits, OutOfTime, Problem
from slurm_hooks.allocation.solvers.finish import TooLarge
from slurm_hooks.allocation.solvers.greedy import solve_greedy
from slurm_hooks.allocation.solvers.knapsack import solve_knapsack
from slurm_hooks.allocation.solvers.market import Priced
from slurm_hooks.allocation.solvers.prices import solve_prices
from slurm_hooks.allocation.value import (
    Counts,
    contradiction,
    held_counts,
    infeasibility,
    is_feasible,
    periods,
    value,
)
from slurm_hooks.model import Solve, SolveStatus
from slurm_hooks.model.plural import plural

SOLVERS = ("auto", "prices", "milp", "highs", "cbc", "greedy")
DEFAULT_LIMITS = Limits()
ATTEMPTS = 4
"""Classes that nearly the same jobs may use are merged in all of these but the last. Each of these
has half of the time that is left."""
LARGEST_MENU = 3_000_000
"""With more sizes of all jobs in all periods, prices take too long."""


def allocate(
    problem: Problem,
    limits: Limits = DEFAULT_LIMITS,
    solver: str = "auto",
    clock: Callable[[], float] = lambda: 0.0,
) -> Allocation:
    """Return nodes by (job, class) for the problem, and how they were found.

    `auto` takes the knapsack where all nodes are equal to the jobs, otherwise prices. Where prices
    cannot prove the requested gap, it takes the best installed MILP solver. If a solver fails, the
    greedy search replaces it, and `Solve` says so.

    The same problem gets the same answer in any order of its jobs, except that a search that runs
    out of time stops. `clock` gives seconds. Without it no time passes, and each search of a MILP
    solver keeps to the limit for itself. Raises ValueError for an unknown solver.
    """
    if solver not in SOLVERS:
        raise ValueError(f"no solver {solver!r}, there are {', '.join(SOLVERS)}")
    watch = _Watch(clock, limits.seconds)
    allocation = _by_name(problem, limits, solver, watch)
    return replace(allocation, solve=replace(allocation.solve, seconds=watch.seconds()))


class _Watch:
    """Measures how much of the time is used up."""

    def __init__(self, clock: Callable[[], float], limit_s: float) -> None:
        self._clock, self._start, self._limit_s = clock, clock(), limit_s

    def seconds(self) -> float:
        """Seconds since the search began."""
        return self._clock() - self._start

    def left(self) -> float:
        """Seconds until the search has to end."""
        return max(0.0, self._limit_s - self.seconds())

    def half(self) -> _Watch:
        """A watch for half of the time that is left."""
        return _Watch(self._clock, self.left() / 2)

    def is_late(self) -> bool:
        """Tell whether the time is up."""
        return self.left() == 0


def _by_name(problem: Problem, limits: Limits, solver: str, watch: _Watch) -> Allocation:
    """Solve with the jobs in order of their names, so that ties do not depend on the caller."""
    order = sorted(range(len(problem.jobs)), key=lambda at: problem.jobs[at].name)
    ordered = replace(problem, jobs=tuple(problem.jobs[at] for at in order))
    allocation = _solve(ordered, limits, solver, watch)
    counts = dict(zip(order, allocation.counts))
    return replace(allocation, counts=tuple(counts[at] for at in range(len(order))))


def _solve(problem: Problem, limits: Limits, solver: str, watch: _Watch) -> Allocation:
    held = held_counts(problem)
    fault = contradiction(problem)
    if fault:
        return Allocation(held, Solve(SolveStatus.UNCHANGED, reason=f"impossible problem: {fault}"))
    if not problem.jobs:
        return Allocation(held, Solve(reason="no jobs"))
    if not any(node_class.capacity for node_class in problem.classes):
        return Allocation(held, Solve(reason="no nodes"))
    chosen = _by_merging(problem, limits, solver, watch)
    fault = infeasibility(problem, chosen.counts)
    if fault:
        return Allocation(held, replace(chosen.solve, status=SolveStatus.UNCHANGED, reason=fault))
    return chosen


def _by_merging(problem: Problem, limits: Limits, solver: str, watch: _Watch) -> Allocation:
    """Solve the problem with fewer classes, and keep those apart that did not fit together."""
    apart: frozenset[int] = frozenset()
    for attempt in range(1, ATTEMPTS + 1):
        merged = merge(problem, apart)
        chosen = _choose(merged.problem, limits, solver, watch if merged.is_exact else watch.half())
        counts, left = merged.split(chosen.counts)
        if not left:
            break
        apart = apart | left if attempt + 1 < ATTEMPTS else frozenset(range(len(problem.classes)))
    return replace(chosen, counts=counts)


def _choose(problem: Problem, limits: Limits, solver: str, watch: _Watch) -> Allocation:
    """Return the exact answer if it is cheap, else the solver's or the greedy search's."""
    shape = f"{plural(len(problem.jobs), 'job')}, {plural(len(problem.classes), 'class')}"
    if solver == "auto" and len(problem.classes) == 1:
        try:
            exact = _knapsack(problem, shape)
            return _best(problem, exact, exact.counts)
        except TooLarge as error:
            shape = f"{shape}; knapsack: {error}"
    floor = solve_greedy(problem, watch.is_late)
    return _best(problem, _ask(problem, limits, (solver, shape), floor, watch), floor)


def _ask(
    problem: Problem, limits: Limits, wish: tuple[str, str], floor: Counts, watch: _Watch
) -> Allocation:
    """Return the answer of the solver in `wish`, which also gives the reason.

    `floor` is the fallback.
    """
    solver, shape = wish
    if watch.is_late():
        return _greedy(problem, floor, f"{shape}; out of time")
    if solver == "greedy":
        return _greedy(problem, floor, shape)
    if solver not in {"auto", "prices"}:
        return _milp(problem, limits, solver, (shape, Priced(floor, 0.0, math.inf)), watch)
    if not _is_askable(problem):
        shape = f"{shape}; too many sizes for prices"
        return _milp(problem, limits, "milp", (shape, Priced(floor, 0.0, math.inf)), watch)
    priced = solve_prices(problem, floor, limits.gap, watch.is_late)
    if priced.gap < math.inf:
        shape = f"{shape}; prices within {max(priced.gap, 0.0):.2g}"
    if solver == "prices" or priced.gap <= limits.gap or watch.is_late():
        return _priced(priced, limits, shape, watch.is_late())
    answer = _milp(problem, limits, "milp", (shape, priced), watch)
    return _best(problem, answer, priced.counts, "prices")


def _is_askable(problem: Problem) -> bool:
    total = sum(c.capacity for c in problem.classes)
    sizes = sum(min(job.max_nodes, total) // job.unit + 1 for job in problem.jobs)
    return sizes * len(periods(problem)) <= LARGEST_MENU


def _priced(priced: Priced, limits: Limits, reason: str, is_late: bool) -> Allocation:
    is_proven = priced.gap <= limits.gap
    reason = reason if is_proven or not is_late else f"{reason}; out of time"
    status = SolveStatus.OPTIMAL if is_proven else SolveStatus.INCUMBENT
    solve = Solve(status, "prices", reason, value=priced.value, bound=priced.bound)
    return Allocation(priced.counts, solve)


def _milp(
    problem: Problem, limits: Limits, name: str, known: tuple[str, Priced], watch: _Watch
) -> Allocation:
    """The answer of a MILP solver that starts from a known answer and stops at a known bound."""
    from slurm_hooks.allocation.solvers.milp import solve_milp  # noqa: PLC0415  (slow; few ask)

    reason, start = known
    left = replace(limits, seconds=watch.left())
    try:
        answer = solve_milp(problem, left, name, start.counts, start.bound, watch.seconds)
    except Exception as error:  # PuLP and solver binaries raise anything, and the tick goes on
        is_late = isinstance(error, OutOfTime)
        fault = "out of time" if is_late else f"{name} failed: {type(error).__name__}: {error}"
        reason = f"{reason}; {fault}"
        if start.bound < math.inf:
            return _priced(start, limits, reason, is_late=False)
        return _greedy(problem, start.counts, reason)
    said = f"; {answer.solve.reason}" if answer.solve.reason else ""
    return replace(answer, solve=replace(answer.solve, reason=f"{reason}{said}"))


def _knapsack(problem: Problem, reason: str) -> Allocation:
    counts = solve_knapsack(problem)
    worth = value(problem, counts)
    solve = Solve(SolveStatus.OPTIMAL, "knapsack", reason, value=worth, bound=worth)
    return Allocation(counts, solve)


def _greedy(problem: Problem, counts: Counts, reason: str) -> Allocation:
    solve = Solve(SolveStatus.INCUMBENT, "greedy", reason, bound=math.inf)
    return Allocation(counts, replace(solve, value=value(problem, counts)))


def _best(
    problem: Problem, answer: Allocation, floor: Counts, name: str = "the greedy search"
) -> Allocation:
    """The solver's answer, unless it is not allowed or another answer is worth more.

    Of equal answers, the answer without changes wins, then the solver's. A solver without an answer
    has said "unchanged". The search called `name`, which found `floor`, may know a better answer.
    """
    held = held_counts(problem)
    solve, fault = answer.solve, infeasibility(problem, answer.counts)
    if fault:
        reason = f"{solve.reason}; answer refused: {fault}"
        solve = replace(solve, status=SolveStatus.UNCHANGED, reason=reason)
    worth = {c: value(problem, c) for c in (held, answer.counts, floor) if is_feasible(problem, c)}
    if not worth:
        return Allocation(held, solve)
    best = max(worth.values())
    slack = 1e-9 * max(1.0, abs(best))
    counts = next(c for c in worth if worth[c] >= best - slack)
    solve = replace(solve, value=worth[counts], bound=max(solve.bound, worth[counts]))
    if counts in (held, answer.counts):
        return Allocation(counts, solve)
    solve = replace(solve, reason=f"{solve.reason}; {name} did better")
    if solve.status is SolveStatus.UNCHANGED:
        solver = "prices" if name == "prices" else "greedy"
        solve = replace(solve, status=SolveStatus.INCUMBENT, solver=solver, bound=math.inf)
    return Allocation(counts, solve)
