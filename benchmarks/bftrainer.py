"""Compare BFTrainer's node-level formulation with ours.

The baseline is written from the equations of the model (arXiv 2106.12091 and its released code), in
our own words, through PuLP:

    max  sum_j T_fwd * S_j - sum_j (u_j * R_up_j * r_j + d_j * R_dw_j * r_j)
    x[j,n] binary, sum_j x[j,n] <= 1; n_j = sum_n x[j,n] is 0 or from Jmin_j to Jmax_j
    D_j = sum_n |x[j,n] - c[j,n]| equals n_j - C_j or C_j - n_j: a job only gains or only loses
    S_j piecewise linear over (N_ji, O_ji), weights of two neighbours at most (SOS2, by binaries)
    u_j = 1 if n_j > C_j, d_j = 1 if n_j < C_j; r_j = O_j(C_j), so that a start from zero is free

A big-M switches between the two cases of D_j. Published is M = N + 1. Then D_j + (n_j - C_j), twice
the growth, is below N + 1, so no job grows by more than (N + 1) / 2 nodes in a solve. The repaired
M is 2 N. Both solvers get the same instances. They have a single class of nodes, since the baseline
has no hole ends.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import warnings
from dataclasses import dataclass
from typing import Any

import pulp
from parts.printing import SAY, arguments, middle, show, tell

from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.curves import prior
from slurm_hooks.allocation.problem import JobAsk, Limits, NodeClass, Problem
from slurm_hooks.model import Curve

T_FWD_S, UP_S, DOWN_S = 120.0, 18.0, 12.0
JOBS, SECONDS, GAP = 35, 120.0, 1e-3  # of an instance; the limits of a solver
SERIAL = (0.0016, 0.0021, 0.0036, 0.00495, 0.0074, 0.0128, 0.0244)


@dataclass(frozen=True)
class Trainer:
    """A job of the baseline: sizes, curve, rescale seconds, and its present nodes."""

    low: int
    high: int
    curve: Curve
    nodes: frozenset[int]

    @property
    def rate(self) -> float:
        """The job's present rate."""
        return self.curve(len(self.nodes))

    def worth(self, size: int) -> float:
        """The objective of the baseline for this job at `size` nodes."""
        grows, shrinks = size > len(self.nodes), size < len(self.nodes)
        return T_FWD_S * self.curve(size) - self.rate * (UP_S * grows + DOWN_S * shrinks)


def make_trainers(jobs: int, nodes: int, seed: int) -> list[Trainer]:
    """Jobs from 1 to 64 nodes in the middle of their day: two in three train, a tenth is free."""
    rng = random.Random(seed)
    spare = list(range(nodes))
    rng.shuffle(spare)
    keep_free = nodes // 10
    trainers = []
    for at in range(jobs):
        wanted = rng.randint(1, max(1, 2 * nodes // jobs)) if at % 3 else 0
        taken = min(wanted, 64, max(0, len(spare) - keep_free))
        mine, spare = spare[:taken], spare[taken:]
        trainers.append(Trainer(1, 64, prior(rng.choice(SERIAL), 64), frozenset(mine)))
    return trainers


def node_level(trainers: list[Trainer], nodes: int, is_published: bool) -> tuple[Any, list[Any]]:
    """The model and each job's size as an expression."""
    lp = pulp.LpProblem("node_level", pulp.LpMaximize)
    big = nodes + 1 if is_published else 2 * nodes
    rows, sizes, gains = [], [], []
    for j, job in enumerate(trainers):
        x = [pulp.LpVariable(f"x_{j}_{n}", cat="Binary") for n in range(nodes)]
        size = pulp.lpSum(x)
        moved = pulp.lpSum(1 - x[n] if n in job.nodes else x[n] for n in range(nodes))
        grown = size - len(job.nodes)
        runs, up, down, loses = (
            pulp.LpVariable(f"{name}_{j}", cat="Binary") for name in ("run", "up", "down", "lose")
        )
        lp += size >= job.low * runs
        lp += size <= job.high * runs
        lp += moved - grown <= big * loses
        lp += moved + grown <= big * (1 - loses)
        lp += grown <= nodes * up
        lp += -1 * grown <= nodes * down
        speed = add_curve(lp, f"{j}", job.curve, size)
        gains.append(T_FWD_S * speed - job.rate * (UP_S * up + DOWN_S * down))
        rows.append(x)
        sizes.append(size)
    for n in range(nodes):
        lp += pulp.lpSum(row[n] for row in rows) <= 1
    lp.setObjective(pulp.lpSum(gains))
    return lp, sizes


def add_curve(lp: Any, name: str, curve: Curve, size: Any) -> Any:
    """The curve's value at `size`: a mix of two neighbouring points."""
    points = curve.points
    mix = [pulp.LpVariable(f"w_{name}_{i}", 0, 1) for i in range(len(points))]
    picks = [pulp.LpVariable(f"z_{name}_{i}", cat="Binary") for i in range(len(points) - 1)]
    lp += pulp.lpSum(mix) == 1
    lp += pulp.lpSum(picks) == 1
    for i, weight in enumerate(mix):
        lp += weight <= pulp.lpSum(picks[max(0, i - 1) : i + 1])
    lp += size == pulp.lpSum(n * weight for (n, _), weight in zip(points, mix))
    return pulp.lpSum(value * weight for (_, value), weight in zip(points, mix))


def find_solver(name: str, seconds: float, gap: float) -> Any:
    """HiGHS or CBC through PuLP, with a single thread."""
    if name == "highs":
        return pulp.HiGHS(msg=False, timeLimit=seconds, gapRel=gap, threads=1)
    path = pulp.PULP_CBC_CMD.pulp_cbc_path
    return pulp.COIN_CMD(path=path, msg=False, timeLimit=seconds, gapRel=gap)


@dataclass(frozen=True)
class Run:
    """Sizes (job), seconds to build and to solve, of a CPU, and whether the optimum was proven."""

    sizes: tuple[int, ...]
    build_s: float
    solve_s: float
    cpu_s: float
    is_proven: bool

    @property
    def seconds(self) -> float:
        """From jobs to sizes."""
        return self.build_s + self.solve_s


def cpu_seconds() -> float:
    """CPU seconds of this process and of the solvers that it ran."""
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system


def run_node_level(
    trainers: list[Trainer], nodes: int, solver: Any, is_published: bool = False
) -> Run:
    """Build and solve the baseline. Without an answer in time all sizes are zero, as published."""
    start, cpu = time.perf_counter(), cpu_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        lp, sizes = node_level(trainers, nodes, is_published)
        built = time.perf_counter()
        lp.solve(solver)
    solved = time.perf_counter()
    is_proven = lp.sol_status == pulp.LpSolutionOptimal
    has_answer = is_proven or lp.sol_status == pulp.LpSolutionIntegerFeasible
    whole_sizes = tuple(round(pulp.value(size) or 0) if has_answer else 0 for size in sizes)
    return Run(whole_sizes, built - start, solved - built, cpu_seconds() - cpu, is_proven)


def as_problem(trainers: list[Trainer], nodes: int) -> Problem:
    """The same instance in counts: a single class, free starts, the same curves in the same
    unit.
    """
    asks = (
        JobAsk(
            name=f"job{at:03}",
            min_nodes=job.low,
            max_nodes=job.high,
            curve=job.curve,
            held=(len(job.nodes),),
            usable=(True,),
            grow_s=UP_S,
            shrink_s=DOWN_S,
            weight=job.curve(1),
        )
        for at, job in enumerate(trainers)
    )
    return Problem(tuple(asks), (NodeClass(nodes),), horizon_s=T_FWD_S)


def run_ours(trainers: list[Trainer], nodes: int, gap: float) -> Run:
    """Ours, the building of the problem included."""
    start, cpu = time.perf_counter(), cpu_seconds()
    problem = as_problem(trainers, nodes)
    built = time.perf_counter()
    allocation = allocate(problem, Limits(gap=gap), clock=time.perf_counter)
    sizes = tuple(sum(row) for row in allocation.counts)
    is_proven = allocation.solve.bound <= allocation.solve.value * (1 + gap)
    solved = time.perf_counter()
    return Run(sizes, built - start, solved - built, cpu_seconds() - cpu, is_proven)


def worth(trainers: list[Trainer], sizes: tuple[int, ...]) -> float:
    """The objective of the baseline."""
    return sum(job.worth(size) for job, size in zip(trainers, sizes))


def compare(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Run an instance: the baseline once, then ours several times."""
    trainers = make_trainers(JOBS, options.nodes, seed)
    solver = find_solver(options.solver, SECONDS, GAP)
    theirs = run_node_level(trainers, options.nodes, solver)
    ours = [run_ours(trainers, options.nodes, GAP) for _ in range(options.repeats)]
    seconds = middle((run.seconds for run in ours), 5) or 0.0
    cpu_s = middle((run.cpu_s for run in ours), 5) or 0.0
    theirs_worth, ours_worth = (worth(trainers, run.sizes) for run in (theirs, ours[0]))
    return {
        "instance": seed,
        "node_level_s": round(theirs.seconds, 3),
        "proven": theirs.is_proven,
        "ours_s": seconds,
        "times_faster": round(theirs.seconds / seconds, 1),
        "in_cpu_s": round(theirs.cpu_s / max(cpu_s, 1e-6), 1),
        "worth_ours_over_theirs": round(ours_worth / theirs_worth, 5) if theirs_worth else None,
    }


def big_m() -> dict[str, int]:
    """A job and ten free nodes: the nodes that each formulation gives it."""
    alone = [Trainer(1, 64, Curve(((0, 0.0), (64, 64.0))), frozenset())]
    solver = find_solver("cbc", 30.0, 1e-6)
    published = run_node_level(alone, 10, solver, is_published=True)
    repaired = run_node_level(alone, 10, solver)
    ours = run_ours(alone, 10, 1e-6)
    runs = {"published": published, "repaired": repaired, "ours": ours}
    return {name: run.sizes[0] for name, run in runs.items()}


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=256, help=f"of {JOBS} jobs")
    parser.add_argument("--solver", choices=("highs", "cbc"), default="highs", help="of theirs")
    parser.add_argument("--instances", type=int, default=3, help="different ones")
    parser.add_argument("--repeats", type=int, default=21, help="runs of ours")
    options = parser.parse_args()
    rows = []
    for seed in range(1, options.instances + 1):
        SAY.print(f"instance {seed} of {options.instances}")
        rows.append(compare(options, seed))
    show(f"{JOBS} jobs on {options.nodes} nodes", rows)
    sizes = big_m()
    show("what one job gets of ten free nodes", [sizes])
    return tell("bftrainer", **vars(options), ten_free_nodes_one_job=sizes, rows=rows)


if __name__ == "__main__":
    sys.exit(main())
