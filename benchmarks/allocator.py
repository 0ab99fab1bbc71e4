"""Measure how long the allocator takes as the machine grows.

Shapes are jobs x nodes x classes. Half of the classes stay open. The others close in turn over
twenty minutes (the mean life of a hole on Summit). The look-ahead is two minutes. Two jobs in three
hold nodes already, at least a tenth of the nodes is free, and every job can use four classes in
five. Memory is the peak of a process that solves the largest shape.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from parts.printing import SAY, alone, arguments, middle, peak_mib, show, tell, timed

from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.curves import curve_of, prior
from slurm_hooks.allocation.merge import merge
from slurm_hooks.allocation.problem import Allocation, JobAsk, Limits, NodeClass, Problem
from slurm_hooks.allocation.solvers.greedy import solve_greedy
from slurm_hooks.allocation.solvers.knapsack import solve_knapsack
from slurm_hooks.allocation.solvers.milp import solve_milp
from slurm_hooks.allocation.value import Counts, is_feasible, value
from slurm_hooks.model import Curve

Shape = tuple[int, int, int]
SHAPES: tuple[Shape, ...] = ((35, 256, 1), (35, 1024, 1), (35, 256, 8), (300, 10000, 30))
SWEEPS: dict[str, list[Shape]] = {
    "jobs": [(n, 10000, 30) for n in (25, 50, 100, 200, 300, 600)],
    "nodes": [(300, n, 30) for n in (600, 1250, 2500, 5000, 10000, 40000)],
    "classes": [(300, 10000, n) for n in (1, 4, 10, 20, 30, 60, 100)],
}


def make_curve(rng: random.Random) -> Curve:
    """Amdahl curves of different quality. Every fourth job has a step, as real jobs do."""
    smooth = prior(rng.choice([0.0016, 0.005, 0.0244]), 64)
    if rng.random() < 0.75:
        return smooth
    return curve_of((n, v * (0.7 if n in {3, 4, 5, 6} else 1.0)) for n, v in smooth.points[1:])


def make_problem(jobs: int, nodes: int, classes: int) -> Problem:
    """A machine in the middle of its day."""
    rng = random.Random(1)
    holes = tuple(
        NodeClass(nodes // classes, math.inf if c % 2 == 0 else 1200.0 * c / classes)
        for c in range(classes)
    )
    free = [int(hole.capacity * 0.9) for hole in holes]
    asks = []
    for at in range(jobs):
        held = [0] * classes
        if at % 3:
            for _ in range(rng.randint(1, min(64, max(1, nodes // jobs)))):
                c = rng.randrange(classes)
                if free[c]:
                    held[c] += 1
                    free[c] -= 1
        usable = tuple(classes == 1 or rng.random() < 0.8 for _ in holes)
        ask = JobAsk(
            name=f"job{at:03}",
            min_nodes=rng.choice([1, 1, 2, 4]),
            max_nodes=64,
            curve=make_curve(rng),
            held=tuple(held),
            usable=usable,
            grow_s=18.0,
            shrink_s=12.0,
        )
        asks.append(ask)
    return Problem(tuple(asks), holes, horizon_s=120.0, survival_s=1192.0)


def time_solver(solve: Callable[[], Allocation], repeats: int) -> tuple[float, Allocation]:
    """Return the median seconds of `repeats` runs, and the answer."""
    runs = [timed(solve) for _ in range(repeats)]
    return middle((seconds for _, seconds in runs), 4) or 0.0, runs[-1][0]


def solvers(problem: Problem, limits: Limits) -> dict[str, Callable[[], Allocation]]:
    """The solvers that fit the problem, by name. Each builds its model again."""

    def plain(solve: Callable[[Problem], Counts]) -> Callable[[], Allocation]:
        return lambda: Allocation(solve(problem))

    table = {
        "allocate": lambda: allocate(problem, limits, clock=time.perf_counter),
        "prices": lambda: allocate(problem, limits, "prices", time.perf_counter),
        "greedy": plain(solve_greedy),
        "milp (HiGHS)": lambda: solve_milp(problem, limits, "highs"),
        "milp (CBC)": lambda: solve_milp(problem, limits, "cbc"),
    }
    if len(problem.classes) == 1:
        table["knapsack"] = plain(solve_knapsack)
    return table


def measure(shape: Shape, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time every solver on a shape. Shares are relative to the least bound that any solver
    proved.
    """
    problem = merge(make_problem(*shape)).problem
    runs = []
    for name, solve in solvers(problem, Limits(seconds=options.seconds)).items():
        try:
            runs.append((name, *time_solver(solve, options.repeats)))
        except LookupError as error:
            SAY.print(f"{name} left out: {error}")
    bounds = [a.solve.bound for _, _, a in runs if a.solve.bound > 0]
    bounds += [value(problem, a.counts) for name, _, a in runs if name == "knapsack"]
    return [
        {
            "shape": "x".join(map(str, shape)),
            "solver": name,
            "seconds": seconds,
            "share_of_bound": round(value(problem, allocation.counts) / min(bounds), 6),
            "status": allocation.solve.status.value if allocation.solve.solver != "none" else "",
            "is_feasible": is_feasible(problem, allocation.counts),
        }
        for name, seconds, allocation in runs
    ]


def sweep(shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    """Time `allocate` over shapes: median of 3, the gap that it proved, and its solver."""
    points = []
    for shape in shapes:
        problem = make_problem(*shape)
        seconds, allocation = time_solver(partial(allocate, problem, clock=time.perf_counter), 3)
        gap = allocation.solve.bound / allocation.solve.value - 1
        point = {"shape": "x".join(map(str, shape)), "seconds": seconds, "gap": round(gap, 6)}
        points.append({**point, "solver": allocation.solve.solver})
    return points


def memory_mib(shape: Shape) -> float:
    """Solve this shape. Return the peak memory of this process, Python included."""
    allocate(make_problem(*shape), clock=time.perf_counter)
    return round(peak_mib(), 1)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="limit of the solvers")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="the first so many")
    parser.add_argument("--sweeps", nargs="*", choices=SWEEPS, default=list(SWEEPS), help="growth")
    options = parser.parse_args()
    rows = [row for shape in SHAPES[: options.shapes] for row in measure(shape, options)]
    show("medians, and the value over the best bound", rows)
    sweeps = {name: sweep(SWEEPS[name]) for name in options.sweeps}
    for name, points in sweeps.items():
        show(f"`allocate` over {name}", points)
    peak = alone(memory_mib, SHAPES[options.shapes - 1])
    SAY.print(f"memory: {peak} MiB")
    return tell("allocator", timings=rows, sweeps=sweeps, memory_mib=peak)


if __name__ == "__main__":
    sys.exit(main())
