"""Solves the allocation as a mixed-integer linear programme. PuLP builds it for HiGHS or CBC.

It only holds the model. `value` gives the worth of an answer and says whether it is allowed, and
`allocate` decides whether to trust it. `milp_job` builds the part of each job.

It differs from the model of BFTrainer (arXiv 2106.12091). It has counts per class instead of a
binary per node. Held and free nodes bound its flags, not all nodes (which capped every change at
half of the machine). Starts cost, holes end, and "no answer" never reads as "release all".
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Optional

import pulp

from slurm_hooks.allocation.problem import Allocation, Limits, OutOfTime, Problem, never
from slurm_hooks.allocation.solvers.milp_job import JobModel, Sheet, add_job
from slurm_hooks.allocation.value import Counts, held_counts, nodes_to_give, periods, value
from slurm_hooks.model import Solve, SolveStatus

SEED = 1


@dataclass(frozen=True)
class Backend:
    """A solver that PuLP can drive here, with the limits. `name` is for people."""

    name: str
    solver: Any


def find_backend(name: str, limits: Limits) -> Backend:
    """The solver called `highs` or `cbc`. `milp` is HiGHS where it is installed, otherwise CBC.

    Raises LookupError if this host has no solver of that name.
    """
    if name in {"milp", "highs"} and hasattr(pulp, "HiGHS"):
        highs = pulp.HiGHS(
            msg=False, gapRel=limits.gap, threads=1, timeLimit=limits.seconds, random_seed=SEED
        )
        if highs.available():
            return Backend("highs", highs)
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
                return Backend("cbc", cbc)
    raise LookupError(
        f"no solver {name} on this host (install highspy for the Python that runs this, or cbc)"
    )


def installed() -> str:
    """The name of the solver that `milp` stands for on this host. Empty without a solver."""
    try:
        return find_backend("milp", Limits()).name
    except LookupError:
        return ""


def solve_milp(
    problem: Problem,
    limits: Limits,
    name: str = "milp",
    start: Optional[Counts] = None,
    bound: float = math.inf,
    seconds: Callable[[], float] = lambda: 0.0,
) -> Allocation:
    """The best counts (job, class) within the limits. The search begins at `start` if it is given.

    `bound` is an upper bound known beforehand. An answer within the gap of it ends the search.

    * OPTIMAL: the answer is within the gap.
    * INCUMBENT: time ran out with an answer in hand.
    * UNCHANGED: time ran out before, so these are the counts held now.

    `seconds` is a clock. To hand the model to a solver takes about as long as to build it. So the
    search has the time that is left after twice the time of building. The bound is infinite if the
    solver does not report it. Raises OutOfTime if nothing is left, LookupError without a solver,
    and passes on PuLP's errors when the solver breaks.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PuLP 3.3 announces PuLP 4
        backend = find_backend(name, limits)
        began, half_s = seconds(), limits.seconds / 2
        sheet, models = build(
            problem, start or held_counts(problem), lambda: seconds() - began > half_s
        )
        left_s = limits.seconds - 2 * (seconds() - began)
        if left_s < 0:  # HiGHS would take a negative limit for none
            raise OutOfTime
        backend.solver.timeLimit = left_s
        if 0 < bound < math.inf:
            _stop_near(backend, sheet.constant - bound / (1 + limits.gap))
        if start:
            _start_from_values(backend.solver)
        sheet.lp.solve(backend.solver)
    return _capped(_read(problem, sheet, models, backend), bound, limits.gap)


def _stop_near(backend: Backend, target: float) -> None:
    """Let HiGHS, which minimises, stop at `target`. PuLP offers this for HiGHS only."""
    if backend.name == "highs":
        backend.solver.optionsDict["objective_target"] = target


def _capped(allocation: Allocation, bound: float, gap: float) -> Allocation:
    """Give the allocation the better of its bound and a known bound, and the right status."""
    solve = replace(
        allocation.solve, bound=max(allocation.solve.value, min(allocation.solve.bound, bound))
    )
    if solve.status is SolveStatus.INCUMBENT and solve.bound - solve.value <= gap * abs(
        solve.value
    ):
        solve = replace(solve, status=SolveStatus.OPTIMAL)
    elif solve.status is SolveStatus.INCUMBENT:
        solve = replace(solve, reason="out of time")
    return replace(allocation, solve=solve)


def _start_from_values(solver: Any) -> None:
    """Let the search begin at the variables' values. PuLP itself offers this for CBC only."""
    if "warmStart" in solver.optionsDict:
        solver.optionsDict["warmStart"] = True
        return

    def run(lp: Any) -> None:
        values = lp.solverModel.getSolution()
        values.col_value = [variable.varValue or 0.0 for variable in lp.variables()]
        lp.solverModel.setSolution(values)
        lp.solverModel.run()

    solver.callSolver = run


def build(
    problem: Problem, start: Counts, is_late: Callable[[], bool] = never
) -> tuple[Sheet, list[JobModel]]:
    """The model of the problem and its jobs (job), with `start` as the first values.

    Raises OutOfTime once it `is_late`.
    """
    sheet = Sheet(pulp.LpProblem("allocation", pulp.LpMaximize))
    spans = periods(problem)
    models: list[JobModel] = []
    for at, row in enumerate(start):
        if is_late():
            raise OutOfTime
        models.append(add_job(sheet, problem, at, spans, row))
    used: list[tuple[Any, float]] = []
    for c, node_class in enumerate(problem.classes):
        in_class = [term for model in models for term in model.nodes[c]]
        used += in_class
        if in_class:
            sheet.at_most(in_class, node_class.capacity)
    if used and nodes_to_give(problem) < sum(c.capacity for c in problem.classes):
        sheet.at_most(used, nodes_to_give(problem))
    sheet.finish()
    return sheet, models


def _read(problem: Problem, sheet: Sheet, models: list[JobModel], backend: Backend) -> Allocation:
    solved = {pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible}
    if sheet.lp.sol_status not in solved:
        said = pulp.LpStatus[sheet.lp.status]
        solve = Solve(SolveStatus.UNCHANGED, backend.name, f"no answer in time ({said})")
        return Allocation(held_counts(problem), solve)
    counts: Counts = tuple(model.row() for model in models)
    worth = value(problem, counts)
    is_optimal = sheet.lp.sol_status == pulp.LpSolutionOptimal
    solve = Solve(
        status=SolveStatus.OPTIMAL if is_optimal else SolveStatus.INCUMBENT,
        solver=backend.name,
        value=worth,
        bound=max(worth, _bound(sheet)),
    )
    return Allocation(counts, solve)


def _bound(sheet: Sheet) -> float:
    """The solver's upper bound. PuLP gets no bound from CBC."""
    model: Any = getattr(sheet.lp, "solverModel", None)  # highspy's own object
    if not hasattr(model, "getInfo"):
        return math.inf
    return float(sheet.constant - model.getInfo().mip_dual_bound)
