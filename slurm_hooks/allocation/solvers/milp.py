"""Solves the allocation as a mixed-integer linear programme. PuLP builds it for HiGHS or CBC.

It only holds the model. `value` gives the worth of an answer and says whether it is allowed, and
`allocate` decides whether to trust it.

It differs from the model of BFTrainer (arXiv 2106.12091). It has counts per class instead of a
binary per node. Held and free nodes bound its flags, not all nodes (which capped every change at
half of the machine). Starts cost, holes end, and "no answer" never reads as "release all".
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import pulp

from slurm_hooks.allocation.problem import Allocation, JobAsk, Limits, OutOfTime, Problem, never
from slurm_hooks.allocation.value import (
    Period,
    change_cost,
    corners,
    held_counts,
    is_off_unit,
    kinks,
    may_gain,
    nodes_to_give,
    periods,
    rate,
    row_value,
    value,
)
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
            solver.optionsDict["objective_target"] = sheet.constant - bound / (1 + limits.gap)
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
    """The model under construction: the PuLP problem, and the constant of its objective."""

    def __init__(self) -> None:
        self.lp: Any = pulp.LpProblem("allocation", pulp.LpMaximize)
        self.constant = 0.0
        self._gains: list[Term] = []
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

    def gain(self, terms: Iterable[Term]) -> None:
        """Add the terms to the objective."""
        self._gains.extend(terms)

    def finish(self) -> None:
        """Hand the objective to PuLP."""
        self.lp.setObjective(_sum(self._gains))

    def bound(self) -> float:
        """The solver's upper bound. PuLP gets no bound from CBC."""
        model: Any = getattr(self.lp, "solverModel", None)  # highspy's own object
        if not hasattr(model, "getInfo"):
            return math.inf
        return float(self.constant - model.getInfo().mip_dual_bound)


def _sum(terms: Iterable[Term]) -> Any:
    """Add up the terms of each variable, which PuLP would not do for a list."""
    factors: dict[Any, float] = {}
    for variable, factor in terms:
        factors[variable] = factors.get(variable, 0.0) + factor
    return pulp.LpAffineExpression(factors)


def _times(terms: Iterable[Term], factor: float) -> list[Term]:
    return [(variable, factor * f) for variable, f in terms]


def build(problem: Problem, is_late: Callable[[], bool] = never) -> tuple[Sheet, list[Nodes]]:
    """The model of the problem, and the nodes of each job. Raises OutOfTime once it `is_late`."""
    sheet, spans = Sheet(), periods(problem)
    nodes: list[Nodes] = []
    for job in problem.jobs:
        if is_late():
            raise OutOfTime
        nodes.append(_add_job(sheet, problem, job, spans))
    columns = [[*chain(*of_class)] for of_class in zip(*nodes)]
    for terms, node_class in zip(columns, problem.classes):
        if terms:
            sheet.require(terms, node_class.capacity)
    if any(columns) and nodes_to_give(problem) < sum(c.capacity for c in problem.classes):
        sheet.require(chain(*columns), nodes_to_give(problem))
    sheet.finish()
    return sheet, nodes


def _add_job(sheet: Sheet, problem: Problem, job: JobAsk, spans: Sequence[Period]) -> Nodes:
    """Add a job: its variables, its rules, and its share of the value."""
    if is_off_unit(job):
        return _add_fixed(sheet, job, spans)
    room, unit = max(0, job.max_nodes - job.size), job.unit
    keep: Nodes = [[(sheet.add(n // unit, True), float(unit))] if n else [] for n in job.held]
    new: Nodes = []
    for c, node_class in enumerate(problem.classes):
        most = min(node_class.capacity, room) // unit if may_gain(job, c) else 0
        new.append([(sheet.add(most, True), float(unit))] if most else [])
    kept, gained = [*chain(*keep)], [*chain(*new)]
    if kept and gained:  # a job that gains keeps all that it holds; `room` is the tightest factor
        grows = sheet.add(1, is_integer=True)
        sheet.require([*gained, (grows, -float(room))], 0)
        sheet.require([(grows, float(job.size)), *_times(kept, -1)], 0)
    nodes = [k + n for k, n in zip(keep, new)]
    _add_progress(sheet, job, nodes, spans)
    return nodes


def _add_fixed(sheet: Sheet, job: JobAsk, spans: Sequence[Period]) -> Nodes:
    """Add a job that is kept unchanged or given up: a single choice, valued beforehand."""
    kept = sheet.add(1 if job.may_have(job.size) else 0, is_integer=True)
    none = row_value(job, spans, (0,) * len(job.held))
    sheet.gain([(kept, row_value(job, spans, job.held) - none)])
    sheet.constant += none
    return [[(kept, float(n))] if n else [] for n in job.held]


def _add_progress(sheet: Sheet, job: JobAsk, nodes: Nodes, spans: Sequence[Period]) -> None:
    """Tie size to MIN and MAX and to the curve, once for each set of classes open together."""
    all_classes = frozenset(c for c, terms in enumerate(nodes) if terms)
    if not all_classes:
        return
    seconds = {all_classes: 0.0}
    for span in spans:
        opened = frozenset(c for c in all_classes if span.is_open[c])
        seconds[opened] = seconds.get(opened, 0.0) + span.seconds
    for opened, length in sorted(seconds.items(), key=lambda item: sorted(item[0])):
        size = [t for c in sorted(opened) for t in nodes[c]]
        if opened == all_classes:
            _add_whole(sheet, job, size, length)
        elif opened and length:
            _add_rest(sheet, job, size, length)


def _add_whole(sheet: Sheet, job: JobAsk, size: list[Term], seconds: float) -> None:
    """Add the whole size: 0 or from MIN to MAX, and its value, including the cost of a change.

    With costs on the curve instead of on flags, the relaxation is as tight as a single job allows.
    """

    def worth(n: int) -> float:
        cost = change_cost(job, max(0, n - job.size), max(0, job.size - n))
        return seconds * rate(job, n) - cost

    none = worth(0)
    sheet.constant += none
    sizes = corners(job, _most(size))
    if not sizes:
        sheet.require(size, 0)
        return
    mixed, _ = _add_curve(sheet, job, [(n, worth(n) - none) for n in sizes])
    sheet.require([*size, *_times(mixed, -1)], 0, pulp.LpConstraintEQ)


def _add_rest(sheet: Sheet, job: JobAsk, size: list[Term], seconds: float) -> None:
    """Add the size that is left when some class has closed. Below MIN the job makes no progress.

    Of explicit sizes, the largest that is open counts: up to the next of them less a unit.
    """
    sizes = kinks(job, _most(size))
    if not sizes:
        return
    mixed, runs = _add_curve(sheet, job, [(n, seconds * rate(job, n)) for n in sizes])
    too_few, covered = float(sizes[0] - job.unit), mixed
    if job.sizes is not None:
        nexts = [*(size for _, size in mixed[1:]), float(_most(size) + job.unit)]
        covered = [(weight, above - job.unit) for (weight, _), above in zip(mixed, nexts)]
    sheet.require([*mixed, *_times(size, -1)], 0)
    sheet.require([*size, *_times(covered, -1), *_times(runs, too_few)], too_few)


def _most(size: list[Term]) -> int:
    return int(sum(variable.upBound * factor for variable, factor in size))


def _add_curve(
    sheet: Sheet, job: JobAsk, points: list[tuple[int, float]]
) -> tuple[list[Term], list[Term]]:
    """Add a size that is a mix of the points (lambda form) or 0, with its value.

    Returns the size as terms, and the binary that says whether it is not 0. If the first point is
    the smallest possible size, 0 is just another point, and there is no binary. A mix over a
    concave stretch is exact when maximised. Where there are several stretches, each has a binary,
    and a single stretch is picked. For a job with explicit sizes each size is a stretch.
    """
    has_none = points[0][0] == job.unit
    points = [(0, 0.0), *points] if has_none else points
    runs = [] if has_none else [(sheet.add(1, is_integer=True), 1.0)]
    stretches = [*_concave_stretches(points)]
    if job.sizes is not None:
        stretches = [range(at, at + 1) for at in range(len(points))]
    mixed: list[Term] = []
    shares: list[Term] = []  # they sum to 1, or to the binary
    for stretch in stretches:
        part = [(sheet.add(1, is_integer=False), *points[at]) for at in stretch]
        mixed += [(weight, float(size)) for weight, size, _ in part]
        sheet.gain((weight, worth) for weight, _, worth in part)
        weights = [(weight, 1.0) for weight, _, _ in part]
        if len(stretches) > 1:
            picked = (sheet.add(1, is_integer=True), 1.0)
            sheet.require([*weights, *_times([picked], -1)], 0, pulp.LpConstraintEQ)
            weights = [picked]
        shares += weights
    sheet.require([*shares, *_times(runs, -1)], 1.0 if has_none else 0.0, pulp.LpConstraintEQ)
    return mixed, runs


def _concave_stretches(points: Sequence[tuple[int, float]]) -> Iterator[range]:
    """Positions of the points, in as few stretches with falling slopes as possible."""
    start = 0
    for at in range(1, len(points) - 1):
        (n0, v0), (n1, v1), (n2, v2) = points[at - 1 : at + 2]
        rise, next_rise = (v1 - v0) / (n1 - n0), (v2 - v1) / (n2 - n1)
        is_bend = at > start and next_rise > rise + 1e-9 * max(1.0, abs(rise))
        if is_bend:
            yield range(start, at + 1)
            start = at
    yield range(start, len(points))
