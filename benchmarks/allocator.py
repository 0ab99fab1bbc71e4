"""How long the allocator takes as the machine grows: `python benchmarks/allocator.py [--png FILE]`.

Prints tables and, as its last line, the same numbers as one JSON object. Shapes are jobs x nodes x
classes. Half of the classes stay open, the others close one by one over twenty minutes (the mean
life of a hole on Summit), the look-ahead is two; two jobs in three hold nodes already, at least a
tenth of the nodes is free; every job can use four classes in five. With `--sectors` the classes
belong to that many partitions, and a job can use those of one. The milp starts from the greedy
answer, as in `allocate`. Memory is that of a process that solves the largest shape and ends.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.curves import curve_of, prior
from slurm_hooks.allocation.merge import merge
from slurm_hooks.allocation.problem import Allocation, JobAsk, Limits, NodeClass, Problem
from slurm_hooks.allocation.solvers.dynamic import solve_dynamic
from slurm_hooks.allocation.solvers.greedy import solve_greedy
from slurm_hooks.allocation.solvers.milp import solve_milp
from slurm_hooks.allocation.value import Counts, is_feasible, value
from slurm_hooks.model import Curve

Shape = tuple[int, int, int]
SHAPES: tuple[Shape, ...] = ((35, 256, 1), (35, 1024, 1), (35, 256, 8), (300, 10000, 30))
LARGEST = SHAPES[-1]
SWEEPS: dict[str, list[Shape]] = {
    "jobs": [(n, 10000, 30) for n in (25, 50, 100, 200, 300, 600)],
    "nodes": [(300, n, 30) for n in (600, 1250, 2500, 5000, 10000, 40000)],
    "classes": [(300, 10000, n) for n in (1, 4, 10, 20, 30, 60, 100)],
}


@dataclass(frozen=True)
class Timing:
    """One solver on one shape: median seconds, value over the best one known, how it ended."""

    shape: str
    solver: str
    runs: int
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


def make_problem(jobs: int, nodes: int, classes: int, seed: int = 1, sectors: int = 1) -> Problem:
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
            for _ in range(rng.randint(1, min(64, max(1, nodes // jobs)))):
                c = rng.randrange(classes)
                if free[c]:
                    held[c] += 1
                    free[c] -= 1
        usable = tuple(classes == 1 or rng.random() < 0.8 for _ in holes)
        usable = tuple(u and c % sectors == at % sectors for c, u in enumerate(usable))
        ask = JobAsk(
            name=f"job{at:03}",
            min_nodes=rng.choice([1, 1, 2, 4]),
            max_nodes=64,
            curve=make_curve(rng),
            held=tuple(held),
            usable=usable,
            grow_s=18.0,
            shrink_s=12.0,
            start_s=18.0,
        )
        asks.append(ask)
    return Problem(tuple(asks), holes, horizon_s=120.0, survival_s=1192.0)


def time_solver(solve: Callable[[], Allocation], repeats: int) -> tuple[float, Allocation]:
    """Median seconds of `repeats` runs, and the answer."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        found = solve()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), found


def solvers(problem: Problem, limits: Limits) -> dict[str, Callable[[], Allocation]]:
    """The solvers that fit the problem, by name; each builds its model anew."""

    def plain(solve: Callable[[Problem], Counts]) -> Callable[[], Allocation]:
        return lambda: Allocation(solve(problem))

    table = {
        "allocate": lambda: allocate(problem, limits, clock=time.perf_counter),
        "prices": lambda: allocate(problem, limits, "prices", time.perf_counter),
        "greedy": plain(solve_greedy),
        "milp (HiGHS)": lambda: solve_milp(problem, limits, "highs", solve_greedy(problem)),
        "milp (CBC)": lambda: solve_milp(problem, limits, "cbc", solve_greedy(problem)),
    }
    if len(problem.classes) == 1:
        table["dynamic"] = plain(solve_dynamic)
    return table


def measure(shape: Shape, options: argparse.Namespace) -> list[Timing]:
    """Time every solver on one shape. Shares are of the least bound that any of them proved."""
    problem = merge(make_problem(*shape, sectors=options.sectors)).problem
    runs = []
    for name, solve in solvers(problem, Limits(seconds=options.seconds)).items():
        print(f"{name} on {shape}", file=sys.stderr)
        try:
            runs.append((name, *time_solver(solve, options.repeats)))
        except LookupError as error:
            print(f"{name} left out: {error}", file=sys.stderr)
    bounds = [a.solve.bound for _, _, a in runs if a.solve.bound > 0]
    bounds += [value(problem, a.counts) for name, _, a in runs if name == "dynamic"]
    return [
        Timing(
            shape="x".join(map(str, shape)),
            solver=name,
            runs=options.repeats,
            seconds=round(seconds, 4),
            share_of_bound=round(value(problem, found.counts) / min(bounds), 6),
            status=found.solve.status.value if found.solve.solver != "none" else "",
            is_feasible=is_feasible(problem, found.counts),
        )
        for name, seconds, found in runs
    ]


def sweep(shapes: Sequence[Shape], sectors: int) -> list[dict[str, Any]]:
    """What `allocate` costs over shapes: median of 3, the gap that it proved, and how."""
    points = []
    for shape in shapes:
        print(f"allocate on {shape}", file=sys.stderr)
        problem = make_problem(*shape, sectors=sectors)
        seconds, found = time_solver(partial(allocate, problem, clock=time.perf_counter), 3)
        gap = found.solve.bound / found.solve.value - 1
        point = {"shape": shape, "seconds": round(seconds, 4), "gap": round(gap, 6)}
        points.append({**point, "solver": found.solve.solver})
    return points


def chart(sweeps: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Seconds over jobs, nodes and classes."""
    from matplotlib.figure import Figure  # noqa: PLC0415  only where a chart is wanted

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    for at, (name, points) in enumerate(sweeps.items()):
        axes = figure.add_subplot(1, 3, at + 1)
        sizes = [point["shape"][at] for point in points]
        axes.loglog(sizes, [point["seconds"] for point in points], marker="o")
        fixed = [f"{n} {word}" for n, word in zip(LARGEST, sweeps) if word != name]
        axes.set(xlabel=name, ylabel="seconds" if not at else "", title=", ".join(fixed))
        axes.set_ylim(1e-2, 10)
        axes.minorticks_off()
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45)
        axes.axhline(2, color="0.6", linestyle="--", linewidth=1)
        axes.grid(True, which="major", alpha=0.3)
    figure.suptitle("Time to share out the nodes (median of 3, gap 0.001)")
    figure.savefig(path, dpi=120)


def memory_mib() -> float:
    """The most memory that a process needs to solve the largest shape, Python included."""
    argv = [sys.executable, __file__, "--memory-of-one"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=300)
    return round(float(done.stdout), 1)


def solve_largest_and_tell() -> None:
    """Solve the largest shape, print the peak of resident memory in MiB.

    Linux hands getrusage's peak on from parent to child; /proc counts this program alone.
    """
    allocate(make_problem(*LARGEST), clock=time.perf_counter)
    status = Path("/proc/self/status").read_text(encoding="ascii")
    print(next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="limit of the solvers")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each, the median counts")
    parser.add_argument("--sectors", type=int, default=1, help="partitions of classes and jobs")
    parser.add_argument("--png", type=Path, metavar="FILE", help="chart of the growth")
    parser.add_argument("--memory-of-one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of_one:
        solve_largest_and_tell()
        return
    table = Table("jobs x nodes x classes", "solver", "seconds", "value / bound", "ended")
    timings: list[Timing] = []
    for shape in SHAPES:
        for timing in measure(shape, options):
            timings.append(timing)
            numbers = f"{timing.seconds:.3f}", f"{timing.share_of_bound:.5f}"
            table.add_row(timing.shape, timing.solver, *numbers, timing.status)
        table.add_section()
    Console().print(table)
    sweeps = {name: sweep(shapes, options.sectors) for name, shapes in SWEEPS.items()}
    if options.png:
        options.png.parent.mkdir(parents=True, exist_ok=True)
        chart(sweeps, options.png)
    rows = [vars(timing) for timing in timings]
    print(json.dumps({"timings": rows, "sweeps": sweeps, "memory_mib": memory_mib()}))


if __name__ == "__main__":
    main()
