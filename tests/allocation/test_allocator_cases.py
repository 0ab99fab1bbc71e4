"""The allocator in situations that are easy to describe, with a promise for each."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.problem import Allocation, JobAsk, Limits, NodeClass, Problem
from slurm_hooks.allocation.solvers import milp as milp_module
from slurm_hooks.allocation.solvers.milp import solve_milp
from slurm_hooks.allocation.value import MOVE_S, held_counts, infeasibility, value
from slurm_hooks.model import Curve, Solve, SolveStatus

EXACT = Limits(seconds=20, gap=1e-9)
SOLVERS = ["auto", "prices", "highs", "cbc", "greedy"]
LINEAR = Curve(((0, 0.0), (64, 64.0)))
FLAT_AFTER_4 = Curve(((0, 0.0), (4, 4.0), (64, 4.0)))
STEP_AT_4 = Curve(((0, 0.0), (1, 1.0), (3, 1.0), (4, 4.0), (64, 64.0)))


def job(name: str = "a", **changes: object) -> JobAsk:
    """A job that scales perfectly from 1 to 64 nodes, holds no node and rescales for free."""
    ask = JobAsk(
        name=name, min_nodes=1, max_nodes=64, curve=LINEAR, held=(0,), usable=(True,), unit=1
    )
    return replace(ask, **changes)  # type: ignore[arg-type]


def one_class(nodes: int, *jobs: JobAsk, **changes: object) -> Problem:
    """The jobs on `nodes` equal nodes that stay open."""
    return replace(Problem(jobs, (NodeClass(nodes),)), **changes)  # type: ignore[arg-type]


def sizes(allocation: Allocation) -> list[int]:
    return [sum(row) for row in allocation.counts]


CASES = [
    # Changes were once capped at half of the machine by a big-M of all nodes.
    ("growth is not capped", one_class(10, job(held=(1,), grow_s=1)), [10]),
    ("a start is not capped", one_class(10, job()), [10]),
    ("MAX binds", one_class(10, job(max_nodes=3)), [3]),
    ("below MIN nothing starts", one_class(3, job(min_nodes=4)), [0]),
    ("a gang below MIN is given up", one_class(3, job(min_nodes=4, held=(2,))), [0]),
    ("a gang below MIN is completed", one_class(4, job(min_nodes=4, held=(2,))), [4]),
    ("a gang above MAX shrinks", one_class(9, job(max_nodes=4, held=(6,))), [4]),
    ("whole units only", one_class(11, job(unit=4, min_nodes=4)), [8]),
    ("half a unit is kept", one_class(9, job(unit=4, min_nodes=3, held=(3,))), [3]),
    ("a ceiling binds", one_class(10, job(), job("b", weight=2), ceiling_nodes=7), [0, 7]),
    ("a ceiling takes back", one_class(10, job(held=(9,)), ceiling_nodes=4), [4]),
    (
        "a ceiling takes from whom it costs least",
        one_class(10, job(held=(4,)), job("b", held=(4,), max_nodes=4, weight=9), ceiling_nodes=5),
        [1, 4],
    ),
    ("a ceiling below MIN stops a job", one_class(10, job(min_nodes=4), ceiling_nodes=3), [0]),
    ("a ceiling of nothing", one_class(10, job(held=(4,)), ceiling_nodes=0), [0]),
    ("a rescale that does not pay", one_class(12, job(held=(10,), grow_s=30)), [10]),
    ("a rescale that pays", one_class(20, job(held=(10,), grow_s=30)), [20]),
    ("a frozen job gets nothing", one_class(9, job(held=(2,), may_grow=False)), [2]),
    ("nodes that may not be used", one_class(9, job(held=(2,), usable=(False,))), [2]),
    ("nodes without use stay free", one_class(9, job(curve=FLAT_AFTER_4)), [4]),
    ("weight decides", one_class(4, job(), job("b", weight=2)), [0, 4]),
    ("steps of a curve", one_class(4, job(curve=STEP_AT_4), job("b", weight=0.5)), [4, 0]),
    (
        "a draw changes nothing",
        one_class(4, job(held=(1,)), job("b", held=(3,))),
        [1, 3],
    ),
]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("problem", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_sizes(problem: Problem, expected: list[int], solver: str) -> None:
    allocation = allocate(problem, EXACT, solver)
    assert infeasibility(problem, allocation.counts) == ""
    assert sizes(allocation) == expected


@pytest.mark.parametrize("solver", SOLVERS)
def test_longer_hole_is_preferred(solver: str) -> None:
    ask = job(max_nodes=3, held=(0, 0, 0), usable=(True, True, True))
    problem = Problem((ask,), (NodeClass(2, 30), NodeClass(2), NodeClass(2, 90)))
    assert allocate(problem, EXACT, solver).counts == ((0, 2, 1),)


@pytest.mark.parametrize("solver", ["auto", "highs", "cbc"])
def test_a_growing_job_keeps_its_nodes(solver: str) -> None:
    """No migration: to leave the closing class it would have to lose nodes and gain others."""
    ask = job(max_nodes=3, held=(2, 0), usable=(True, True))
    problem = Problem((ask,), (NodeClass(2, 30), NodeClass(3)))
    assert allocate(problem, EXACT, solver).counts == ((2, 1),)


def test_value_of_a_hole_that_ends() -> None:
    ask = job(min_nodes=2, held=(2, 0), usable=(True, True), grow_s=10, weight=2)
    problem = Problem((ask,), (NodeClass(4), NodeClass(1, open_s=30)), horizon_s=120)
    assert value(problem, ((2, 0),)) == 120 * 2 * 2
    assert value(problem, ((2, 1),)) == 2 * (30 * 3 + 90 * 2 - 10 * 2 - MOVE_S)
    assert value(problem, ((0, 0),)) == -2 * 2 * MOVE_S


def test_progress_stops_below_min() -> None:
    ask = job(min_nodes=2, held=(0, 0), usable=(True, True))
    problem = Problem((ask,), (NodeClass(1), NodeClass(1, open_s=30)), horizon_s=120)
    assert value(problem, ((1, 1),)) == pytest.approx(30 * 2 - 2 * MOVE_S)


def test_survival_discounts_by_the_middle_of_each_period() -> None:
    problem = Problem((job(held=(1,)),), (NodeClass(1),), horizon_s=100, survival_s=50)
    assert value(problem, ((1,),)) == pytest.approx(100 * math.exp(-1))


INFEASIBLE = [
    (((3,), (2,)), "class 0: 5 of 4"),
    (((1,), (0,)), "allowed are 2 to 4"),
    (((5,), (0,)), "allowed are 2 to 4"),
    (((3,), (1,)), "in units of 2"),
    (((-2,), (0,)), "not a row"),
    (((2, 0), (0,)), "not a row"),
    (((2,),), "1 rows for 2 jobs"),
    (((4,), (0,)), "ceiling"),
]


@pytest.mark.parametrize(("counts", "reason"), INFEASIBLE, ids=[r for _, r in INFEASIBLE])
def test_infeasibility_names_the_rule(counts: tuple[tuple[int, ...], ...], reason: str) -> None:
    jobs = (job(min_nodes=2, max_nodes=4), job("b", unit=2))
    problem = one_class(4, *jobs, ceiling_nodes=3)
    assert reason in infeasibility(problem, counts)


def test_gaining_and_losing_at_once_is_infeasible() -> None:
    ask = job(held=(1, 0), usable=(True, True))
    problem = Problem((ask,), (NodeClass(2), NodeClass(2)))
    assert "gains and loses" in infeasibility(problem, ((0, 1),))


# Cases in which solvers fail.

TWO_CLASSES = Problem(
    (
        job("a", held=(3, 0), usable=(True, True)),
        job("b", held=(1, 2), usable=(True, True), curve=FLAT_AFTER_4),
    ),
    (NodeClass(6, open_s=60), NodeClass(9)),
)


def test_without_time_each_job_keeps_its_nodes() -> None:
    allocation = solve_milp(TWO_CLASSES, Limits(seconds=0))
    assert allocation.solve.status is SolveStatus.UNCHANGED
    assert allocation.counts == held_counts(TWO_CLASSES)


def no_answer(problem: Problem, *_: object) -> Allocation:
    return Allocation(held_counts(problem), Solve(SolveStatus.UNCHANGED, "highs", "out of time"))


def all_zero(problem: Problem, *_: object) -> Allocation:
    zeros = tuple((0,) * len(job.held) for job in problem.jobs)
    return Allocation(zeros, Solve(SolveStatus.INCUMBENT, "highs"))


def too_much(problem: Problem, *_: object) -> Allocation:
    plenty = tuple((60,) * len(job.held) for job in problem.jobs)
    return Allocation(plenty, Solve(SolveStatus.OPTIMAL, "highs"))


def broken(*_: object) -> Allocation:
    raise OSError("cbc: permission denied")


@pytest.mark.parametrize("misbehave", [no_answer, all_zero, too_much, broken])
def test_failing_solver_is_replaced(misbehave: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milp_module, "solve_milp", misbehave)
    allocation = allocate(TWO_CLASSES, solver="milp")
    assert infeasibility(TWO_CLASSES, allocation.counts) == ""
    assert allocation.solve.value > value(TWO_CLASSES, held_counts(TWO_CLASSES))
    assert allocation.solve.solver == "prices"


@pytest.mark.parametrize("misbehave", [no_answer, all_zero, too_much])
def test_failing_solver_never_releases_everything(
    misbehave: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = tuple(replace(j, may_grow=False) for j in TWO_CLASSES.jobs)
    problem = replace(TWO_CLASSES, jobs=frozen)
    monkeypatch.setattr(milp_module, "solve_milp", misbehave)
    # Merging leaves two classes: the knapsack cannot help.
    assert allocate(problem, solver="milp").counts == held_counts(problem)


def test_no_solver_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(milp_module.pulp, "HiGHS", raising=False)
    monkeypatch.setattr(milp_module.pulp.COIN_CMD, "available", lambda self: False)
    allocation = allocate(TWO_CLASSES, solver="milp")
    assert allocation.solve.solver == "prices"
    assert "no solver milp on this host" in allocation.solve.reason


def test_cbc_steps_in_without_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(milp_module.pulp, "HiGHS", raising=False)
    assert milp_module.find_backend("milp", EXACT)[0] == "cbc"


def test_seconds_are_read_from_the_clock() -> None:
    ticks = iter([10.0, 12.5])
    assert allocate(one_class(4, job()), clock=lambda: next(ticks)).solve.seconds == 2.5


@pytest.mark.parametrize("problem", [one_class(4), one_class(0, job())])
def test_a_problem_without_jobs(problem: Problem) -> None:
    allocation = allocate(problem)
    assert allocation.solve.status is SolveStatus.NOTHING
    assert allocation.counts == held_counts(problem)


@pytest.mark.parametrize(
    "problem",
    [
        one_class(3, job(held=(4,))),
        one_class(3, job(weight=math.nan)),
        one_class(3, job(min_nodes=5, max_nodes=4)),
    ],
)
def test_a_contradicting_problem_changes_no_job(problem: Problem) -> None:
    allocation = allocate(problem)
    assert allocation.solve.status is SolveStatus.UNCHANGED
    assert allocation.counts == held_counts(problem)
    assert "impossible problem" in allocation.solve.reason


def test_unknown_solver() -> None:
    with pytest.raises(ValueError, match="no solver 'gurobi'"):
        allocate(one_class(1, job()), solver="gurobi")
