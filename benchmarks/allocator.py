"""How long the allocator's solvers take as the machine grows: `python benchmarks/allocator.py`.

Prints a table and, as its last line, the same numbers as one JSON object. Shapes are jobs x nodes x
classes. Half of the classes stay open, the others close one by one over twenty minutes (the mean
life of a hole on Summit), the look-ahead is two; two jobs in three hold nodes already, at least a
tenth of the nodes is free; every job can use four classes in five. The milp starts from the greedy
answer, as in `allocate`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from slurm_hooks.core.allocate import allocate
from slurm_hooks.core.curves import curve_of, prior
from slurm_hooks.core.dynamic import solve_dynamic
from slurm_hooks.core.greedy import solve_greedy
from slurm_hooks.core.merge import merge
from slurm_hooks.core.milp import solve_milp
from slurm_hooks.core.problem import Allocation, JobAsk, Limits, NodeClass, Problem
from slurm_hooks.core.value import Counts, is_feasible, value
from slurm_hooks.model import Curve

SHAPES = ((35, 1024, 1), (35, 256, 8), (300, 10000, 30))


@dataclass(frozen=True)
class Timing:
    """One solver on one shape: median seconds, value over the best one known, how it ended."""

    shape: str
    solver: str
    seconds: float
    share_of_bound: float
    status: str
    is_feasible: bool


def make_curve(rng: random.Random) -> Curve:
    """Amdahl curves of different quality; every fourth job has a step, as real ones do."""
    smooth = prior(rng.choice([0.0016, 0.005, 0.0244]), 64)
    if rng.random() < 0.75:
        return smooth
    return curve_of((n, v * (0.7 if n in {3, 4, 5, 6} else 1.0)) for n, v in smooth.points[1:])


def make_problem(jobs: int, nodes: int, classes: int, seed: int = 1) -> Problem:
    """A machine in the middle of its day."""
    rng = random.Random(seed)
    holes = tuple(
        NodeClass(nodes // classes, math.inf if c % 2 == 0 else 1200.0 * c / classes)
        for c in range(classes)
    )
    free = [int(hole.capacity * 0.9) for hole in holes]
    asks = []
    for at in range(jobs):
        held = [0] * classes
        if at % 3:
            for _ in range(rng.randint(1, max(1, nodes // jobs))):
                c = rng.randrange(classes)
                if free[c]:
                    held[c] += 1
                    free[c] -= 1
        ask = JobAsk(
            name=f"job{at:03}",
            min_nodes=rng.choice([1, 1, 2, 4]),
            max_nodes=64,
            curve=make_curve(rng),
            held=tuple(held),
            usable=tuple(classes == 1 or rng.random() < 0.8 for _ in holes),
            grow_s=18.0,
            shrink_s=12.0,
            start_s=18.0,
        )
        asks.append(ask)
    return Problem(tuple(asks), holes, horizon_s=120.0, survival_s=1192.0)


def time_solver(
    problem: Problem, solve: Callable[[], Allocation], repeats: int
) -> tuple[float, Allocation]:
    """Median seconds of `repeats` runs, and the answer."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        found = solve()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), found


def solvers(problem: Problem, limits: Limits) -> dict[str, Callable[[], Allocation]]:
    """The solvers that fit the problem, by name."""

    def plain(solve: Callable[[Problem], Counts]) -> Callable[[], Allocation]:
        return lambda: Allocation(solve(problem))

    table = {
        "milp (HiGHS)": lambda: solve_milp(problem, limits, "highs", solve_greedy(problem)),
        "milp (CBC)": lambda: solve_milp(problem, limits, "cbc", solve_greedy(problem)),
        "greedy": plain(solve_greedy),
        "allocate": lambda: allocate(problem, limits),
    }
    if len(problem.classes) == 1:
        table["dynamic"] = plain(solve_dynamic)
    return table


def measure(shape: tuple[int, int, int], limits: Limits, repeats: int) -> list[Timing]:
    """Time every solver on one shape. Shares are of the least bound that any of them proved."""
    problem = merge(make_problem(*shape)).problem
    runs = []
    for name, solve in solvers(problem, limits).items():
        try:
            runs.append((name, *time_solver(problem, solve, repeats)))
        except LookupError as error:
            print(f"{name} left out: {error}", file=sys.stderr)
    bounds = [a.solve.bound for _, _, a in runs if a.solve.bound > 0]
    bounds += [value(problem, a.counts) for name, _, a in runs if name == "dynamic"]
    return [
        Timing(
            shape="x".join(map(str, shape)),
            solver=name,
            seconds=round(seconds, 4),
            share_of_bound=round(value(problem, found.counts) / min(bounds), 5),
            status=found.solve.status.value if found.solve.solver != "none" else "",
            is_feasible=is_feasible(problem, found.counts),
        )
        for name, seconds, found in runs
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="limit of the MILP solvers")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each, the median counts")
    options = parser.parse_args()
    table = Table("jobs x nodes x classes", "solver", "seconds", "value / bound", "ended")
    timings: list[Timing] = []
    for shape in SHAPES:
        for timing in measure(shape, Limits(seconds=options.seconds), options.repeats):
            timings.append(timing)
            numbers = f"{timing.seconds:.3f}", f"{timing.share_of_bound:.4f}"
            table.add_row(timing.shape, timing.solver, *numbers, timing.status)
        table.add_section()
    Console().print(table)
    print(json.dumps({"timings": [vars(timing) for timing in timings]}))


if __name__ == "__main__":
    main()
