"""Solves the allocation as a mixed-integer linear programme. PuLP builds it for HiGHS or CBC.

It only holds the model. `bids` gives the table of each job's gains, `value` the worth of an answer
and whether it is allowed, and `allocate` decides whether to trust it.

It differs from the model of BFTrainer (arXiv 2106.12091). It has counts per class instead of a
binary per node. The room of a job bounds its flags, not all nodes (which capped every change at
half of the machine). Starts cost, holes end, and "no answer" never reads as "release all".
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from operator import add
from typing import Any

import pulp

from slurm_hooks.allocation.problem import Allocation, Limits, OutOfTime, Problem, never
from slurm_hooks.allocation.solvers.bids import NEVER, Bidder
from slurm_hooks.allocation.value import held_counts, nodes_to_give, periods, value
from slurm_hooks.model import Solve, SolveStatus

SEED = 1
Term = tuple[Any, float]  # (variable, coefficient)
Nodes = list[list[Term]]  # the nodes of a job in each class


def find_backend(name: str, limits: Limits) -> tuple[str, Any]:
    """The name and PuLP's object of `highs` or `cbc`. `milp` is HiGHS if installed, otherwise CBC.

    Raises LookupError if this host has no solver of that name.
    """
    if name in {"milp", "highs"} and hasattr(pulp, "HiGHS"):
        highs = pulp.HiGHS(
            msg=False, gapRel=limits.gap, threads=1, timeLimit=limits.seconds, random_seed=SEED
        )
        if highs.available():
            return "highs", highs
    if name in {"milp", "cbc"}:
        for path in (pulp.PULP_CBC_CMD.pulp_cbc_path, "cbc"):
            cbc = pulp.COIN_CMD(
                path=path,
                msg=False,
                gapRel=limits.gap,
                timeLimit=limits.seconds,
                options=[f"randomSeed {SEED}", f"randomCbcSeed {SEED}"],
            )
            if cbc.available():
                return "cbc", cbc
    raise LookupError(
        f"no solver {name} on this host (install highspy for the Python that runs this, or cbc)"
    )


def installed() -> str:
    """The name of the solver that `milp` stands for on this host. Empty without a solver."""
    try:
        return find_backend("milp", Limits())[0]
    except LookupError:
        return ""


def solve_milp(
    problem: Problem,
    limits: Limits,
    name: str = "milp",
    bound: float = math.inf,
    seconds: Callable[[], float] = lambda: 0.0,
) -> Allocation:
    """The best counts (job, class) within the limits. `bound` is an upper bound known beforehand.

    * OPTIMAL: the answer is within the gap.
    * INCUMBENT: time ran out with an answer in hand.
    * UNCHANGED: time ran out before, so these are the counts held now.

    `seconds` is a clock. To hand the model to a solver takes about as long as to build it. So the
    search has the time that is left after twice the time of building. The bound is infinite if
    none is known. Raises OutOfTime if nothing is left, LookupError without a solver, and passes on
    PuLP's errors when the solver breaks.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PuLP 3.3 announces PuLP 4
        name, solver = find_backend(name, limits)
        began, half_s = seconds(), limits.seconds / 2
        sheet, nodes = build(problem, lambda: seconds() - began > half_s)
        solver.timeLimit = limits.seconds - 2 * (seconds() - began)
        if solver.timeLimit < 0:  # HiGHS would take a negative limit for none
            raise OutOfTime
        if name == "highs" and 0 < bound < math.inf:  # HiGHS minimises; PuLP hides its target
            solver.optionsDict["objective_target"] = -bound / (1 + limits.gap)
        sheet.lp.solve(solver)
    if sheet.lp.sol_status not in {pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible}:
        reason = f"no answer in time ({pulp.LpStatus[sheet.lp.status]})"
        return Allocation(held_counts(problem), Solve(SolveStatus.UNCHANGED, name, reason))
    counts = tuple(tuple(map(_count, of_job)) for of_job in nodes)
    worth = value(problem, counts)
    bound = max(worth, min(sheet.bound(), bound))
    is_done = sheet.lp.sol_status == pulp.LpSolutionOptimal
    is_proven = is_done or bound - worth <= limits.gap * abs(worth)
    status = SolveStatus.OPTIMAL if is_proven else SolveStatus.INCUMBENT
    reason = "" if is_proven else "out of time"
    return Allocation(counts, Solve(status, name, reason, value=worth, bound=bound))


def _count(terms: Iterable[Term]) -> int:
    return sum(round(variable.varValue or 0) * int(factor) for variable, factor in terms)


class Sheet:
    """The model under construction. The objective is the sum of the `gains`."""

    def __init__(self) -> None:
        self.lp: Any = pulp.LpProblem("allocation", pulp.LpMaximize)
        self.gains: list[Term] = []
        self._columns = 0

    def add(self, upper: float, is_integer: bool) -> Any:
        """Add a variable from 0 to `upper`."""
        self._columns += 1
        make = getattr(self.lp, "add_variable", pulp.LpVariable)  # PuLP 3.3 prefers the former
        category = pulp.LpInteger if is_integer else pulp.LpContinuous
        return make(f"x{self._columns}", 0, upper, category)

    def require(
        self, terms: Iterable[Term], limit: float, sense: int = pulp.LpConstraintLE
    ) -> None:
        """Require: sum of the terms <= limit, or = limit."""
        self.lp.addConstraint(pulp.LpConstraint(_sum(terms), sense, rhs=limit))

    def bound(self) -> float:
        """The solver's upper bound. PuLP gets no bound from CBC."""
        model: Any = getattr(self.lp, "solverModel", None)  # highspy's own object
        if not hasattr(model, "getInfo"):
            return math.inf
        return float(-model.getInfo().mip_dual_bound)


def _sum(terms: Iterable[Term]) -> Any:
    """Add up the terms of each variable, which PuLP would not do for a list."""
    factors: dict[Any, float] = {}
    for variable, factor in terms:
        factors[variable] = factors.get(variable, 0.0) + factor
    return pulp.LpAffineExpression(factors)


def build(problem: Problem, is_late: Callable[[], bool] = never) -> tuple[Sheet, list[Nodes]]:
    """The model of the problem, and the nodes of each job. Raises OutOfTime once it `is_late`."""
    sheet, spans = Sheet(), periods(problem)
    caps = [node_class.capacity for node_class in problem.classes]
    nodes: list[Nodes] = []
    for job in problem.jobs:
        if is_late():
            raise OutOfTime
        nodes.append(_add_job(sheet, Bidder(job, spans, caps)))
    columns = [[*chain(*of_class)] for of_class in zip(*nodes)]
    for terms, cap in zip(columns, caps):
        if terms:
            sheet.require(terms, cap)
    if any(columns) and nodes_to_give(problem) < sum(caps):
        sheet.require(chain(*columns), nodes_to_give(problem))
    sheet.lp.setObjective(_sum(sheet.gains))
    return sheet, nodes


def _add_job(sheet: Sheet, bidder: Bidder) -> Nodes:
    """Add a job: a binary for each of its modes, of which it takes one, and the units added."""
    nodes: Nodes = [[] for _ in bidder.depths]
    ways: list[Term] = []
    for mode in bidder.modes:
        way = sheet.add(1, is_integer=True)
        ways.append((way, 1.0))
        units: dict[int, Any] = {}
        for c, (base, room) in enumerate(zip(mode.base, mode.room)):
            nodes[c] += [(way, float(base))] if base else []
            most = min(room // bidder.job.unit, mode.most)
            if most:
                units[c] = sheet.add(most, is_integer=True)
                nodes[c].append((units[c], float(bidder.job.unit)))
        tables = {frozenset(units): mode.last}  # by the classes that are open together
        for depth, gains in enumerate(mode.gains[1:], start=1):
            opened = frozenset(c for c in units if bidder.depths[c] >= depth)
            tables[opened] = [*map(add, tables.get(opened, repeat(0.0)), gains)]
        for opened, table in sorted(tables.items(), key=lambda item: sorted(item[0])):
            _add_table(sheet, way, [units[c] for c in sorted(opened)], table)
    sheet.require(ways, 1.0, pulp.LpConstraintEQ)
    return nodes


def _add_table(sheet: Sheet, way: Any, units: list[Any], table: Sequence[float]) -> None:
    """Add the value that a `table` gives to the sum of the units, if the `way` is taken.

    The sum is a mix of the points at which the table bends (lambda form). A mix over a concave
    stretch is exact when maximised. Where there are several stretches, each has a binary, and a
    single stretch is picked.
    """
    most = sum(int(variable.upBound) for variable in units)
    stretches = _concave_stretches(table[: most + 1])
    sizes: list[Term] = [(variable, -1.0) for variable in units]
    shares: list[Term] = []
    for stretch in stretches:
        part = [(sheet.add(1, is_integer=False), at) for at in stretch]
        sheet.gains += [(weight, table[at]) for weight, at in part]
        sizes += [(weight, float(at)) for weight, at in part]
        weights = [(weight, 1.0) for weight, _ in part]
        if len(stretches) > 1:
            picked = sheet.add(1, is_integer=True)
            sheet.require([*weights, (picked, -1.0)], 0, pulp.LpConstraintEQ)
            weights = [(picked, 1.0)]
        shares += weights
    sheet.require([*shares, (way, -1.0)], 0, pulp.LpConstraintEQ)
    sheet.require(sizes, 0, pulp.LpConstraintEQ)


def _concave_stretches(table: Sequence[float]) -> list[list[int]]:
    """The positions of the ends and bends of a table, in as few stretches with falling slopes as
    possible. A stretch ends before a position that is not allowed."""
    stretches: list[list[int]] = [[]]
    for at, worth in enumerate(table):
        stretch = stretches[-1]
        if worth == NEVER:
            stretches.append([])
        elif len(stretch) < 2:
            stretch.append(at)
        else:
            before, last = stretch[-2:]
            rise = (table[last] - table[before]) / (last - before)
            turn, slack = worth - table[last] - rise, 1e-9 * max(1.0, abs(rise))
            if turn > slack:
                stretches.append([last, at])
            elif turn < -slack:
                stretch.append(at)
            else:
                stretch[-1] = at
    return [*filter(None, stretches)]
