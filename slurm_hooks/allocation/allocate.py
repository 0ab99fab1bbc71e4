"""The single entry to the allocator: picks a solver and checks its answer.

Whatever a solver does, the answer returned here is allowed. It is worth no less than the answer
that the solver began from, and no less than no change. "No answer" never turns into "release
everything". The clock only times the search, and no decision depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from slurm_hooks.allocation.merge import merge
from slurm_hooks.allocation.problem import Allocation, Limits, OutOfTime, Problem
from slurm_hooks.allocation.solvers.finish import TooLarge
from slurm_hooks.allocation.solvers.greedy import solve_greedy
from slurm_hooks.allocation.solvers.knapsack import solve_knapsack
from slurm_hooks.allocation.solvers.market import Market
from slurm_hooks.allocation.solvers.prices import solve_prices
from slurm_hooks.allocation.value import (
    contradiction,
    held_counts,
    infeasibility,
    is_feasible,
    periods,
    value,
)
from slurm_hooks.model import Solve, SolveStatus
from slurm_hooks.model.moments import plural

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
    best answer so far stays, and `Solve` says so.

    The same problem gets the same answer in any order of its jobs, except that a search that runs
    out of time stops. `clock` gives seconds. Without it no time passes, and each search of a MILP
    solver keeps to the limit for itself. Raises ValueError for an unknown solver.
    """
    if solver not in SOLVERS:
        raise ValueError(f"no solver {solver!r}, there are {', '.join(SOLVERS)}")
    began_s = clock()
    order = sorted(range(len(problem.jobs)), key=lambda at: problem.jobs[at].name)
    ordered = replace(problem, jobs=tuple(problem.jobs[at] for at in order))
    allocation = _solve(ordered, limits, solver, _Watch(clock, began_s + limits.seconds))
    counts = dict(zip(order, allocation.counts))
    return Allocation(
        counts=tuple(counts[at] for at in range(len(order))),
        solve=replace(allocation.solve, seconds=clock() - began_s),
    )


@dataclass(frozen=True)
class _Watch:
    """Knows how much time is left until `end_s`."""

    clock: Callable[[], float]
    end_s: float

    def left_s(self) -> float:
        """Seconds until the search has to end."""
        return max(0.0, self.end_s - self.clock())

    def half(self) -> _Watch:
        """A watch for half of the time that is left."""
        return replace(self, end_s=self.end_s - self.left_s() / 2)

    def is_late(self) -> bool:
        """Tell whether the time is up."""
        return self.left_s() == 0


def _solve(problem: Problem, limits: Limits, solver: str, watch: _Watch) -> Allocation:
    """The answer, or no change where the answer is not allowed or worth no more."""
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
    slack = 1e-9 * max(1.0, abs(chosen.solve.value))
    if is_feasible(problem, held) and value(problem, held) >= chosen.solve.value - slack:
        return replace(chosen, counts=held)
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
    """The exact answer if it is cheap, else the best of the greedy search, prices and a MILP."""
    shape = f"{plural(len(problem.jobs), 'job')}, {plural(len(problem.classes), 'class')}"
    if solver == "auto" and len(problem.classes) == 1:
        try:
            counts = solve_knapsack(problem)
        except TooLarge as error:
            shape = f"{shape}; knapsack: {error}"
        else:
            worth = value(problem, counts)
            solve = Solve(SolveStatus.OPTIMAL, "knapsack", shape, value=worth, bound=worth)
            return Allocation(counts, solve)
    market = Market(problem, solve_greedy(problem, watch.is_late), watch.is_late)
    if solver == "greedy" or watch.is_late():
        return _known(market, limits, shape, watch)
    if not _is_askable(problem):
        return _known(market, limits, f"{shape}; too many sizes for prices", watch)
    solve_prices(market, limits.gap)
    if market.gap < math.inf:
        shape = f"{shape}; prices within {market.gap:.2g}"
    is_enough = market.gap <= limits.gap if solver == "auto" else solver == "prices"
    if is_enough or watch.is_late():
        return _known(market, limits, shape, watch)
    return _milp(market, limits, "milp" if solver == "auto" else solver, shape, watch)


def _is_askable(problem: Problem) -> bool:
    total = sum(c.capacity for c in problem.classes)
    sizes = sum(min(job.max_nodes, total) // job.unit + 1 for job in problem.jobs)
    return sizes * len(periods(problem)) <= LARGEST_MENU


def _known(market: Market, limits: Limits, reason: str, watch: _Watch) -> Allocation:
    """The best answer of the market, which is the greedy search's while no price is asked."""
    is_proven = market.gap <= limits.gap
    reason = f"{reason}; out of time" if watch.is_late() and not is_proven else reason
    status = SolveStatus.OPTIMAL if is_proven else SolveStatus.INCUMBENT
    name = "prices" if market.bound < math.inf else "greedy"
    solve = Solve(status, name, reason, value=market.value, bound=market.bound)
    return Allocation(market.counts, solve)


def _milp(market: Market, limits: Limits, name: str, shape: str, watch: _Watch) -> Allocation:
    """The answer of a MILP solver, unless it fails or the market knows a better answer."""
    from slurm_hooks.allocation.solvers.milp import solve_milp  # noqa: PLC0415  (slow; few ask)

    try:
        left = replace(limits, seconds=watch.left_s())
        answer = solve_milp(market.problem, left, name, market.bound, watch.clock)
    except OutOfTime:
        return _known(market, limits, f"{shape}; out of time", watch)
    except Exception as error:  # PuLP and solver binaries raise anything, and the tick goes on
        fault = f"{name} failed: {type(error).__name__}: {error}"
        return _known(market, limits, f"{shape}; {fault}", watch)
    reason = "; ".join(filter(None, (shape, answer.solve.reason)))
    fault = infeasibility(market.problem, answer.counts)
    if fault:
        return _known(market, limits, f"{reason}; answer refused: {fault}", watch)
    worth = value(market.problem, answer.counts)
    bound = max(answer.solve.bound, market.value)
    if worth > market.value:
        solve = replace(answer.solve, reason=reason, value=worth, bound=bound)
        return replace(answer, solve=solve)
    market.bound = min(market.bound, bound)
    return _known(market, limits, f"{reason}; prices did better", watch)
