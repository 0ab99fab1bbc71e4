"""Defines the worth of an allocation, and which allocations are allowed, for all solvers.

The MILP, the knapsack, prices and the greedy search are compared with each other and with brute
force through this module. The objective follows BFTrainer (arXiv 2106.12091): work done within the
look-ahead less the work lost while rescaling. In addition, holes end (periods) or end early
(survival), and a start costs too. See `row_value` for the terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import gt, lt

from slurm_hooks.allocation.problem import JobAsk, Problem

Row = tuple[int, ...]
Counts = tuple[Row, ...]

MOVE_S = 1e-3
"""The node-seconds that each moved node costs. So of equal answers the least move wins."""
PREFERRED = 1e-3
"""The share by which progress at a preferred size counts more: the gap that solvers may leave."""


@dataclass(frozen=True)
class Period:
    """A stretch of the look-ahead in which no hole ends. Survival discounts its `seconds`."""

    seconds: float
    is_open: tuple[bool, ...]  # (class)


def periods(problem: Problem) -> tuple[Period, ...]:
    """The look-ahead, cut where classes close before the horizon."""
    horizon = problem.horizon_s
    ends = {c.open_s for c in problem.classes if 0 < c.open_s < horizon} | {horizon}
    cuts = [0.0, *sorted(ends)]
    return tuple(
        Period(
            seconds=(end - start) * math.exp(-(start + end) / 2 / problem.survival_s),
            is_open=tuple(c.open_s >= end for c in problem.classes),
        )
        for start, end in zip(cuts, cuts[1:])
    )


def progress(job: JobAsk, size: int) -> float:
    """Weighted speed-up with the nodes that it may use of `size` nodes, at most MAX."""
    used = job.settled(size)
    if not used:
        return 0.0
    liked = 1 + PREFERRED if used == job.preferred else 1.0
    return job.weight * job.speedup(used) * liked


def rate(job: JobAsk, size: int) -> float:
    """The worth of a second at `size` nodes: its progress, and its claim to a minimum."""
    return progress(job, size) + job.claim if job.settled(size) else 0.0


def progress_now(job: JobAsk) -> float:
    """The progress that it makes now, which a rescale interrupts."""
    return job.weight * (job.beside + job.speedup_now)


def is_idle(job: JobAsk) -> bool:
    """Tell whether the job does not train now, so that a change interrupts no training."""
    return job.size < job.min_nodes and not job.beside


def row_value(job: JobAsk, spans: Sequence[Period], row: Row) -> float:
    """The worth of a job's counts `row` (class), in weighted normalised node-seconds.

    It is the sum over the periods of seconds times `rate` at the size still open then. A job whose
    open nodes fall below MIN makes no progress from there on. At most a single cost is subtracted:

    * it trains now and gains nodes: `grow_s` times its progress now,
    * it trains now and loses some or all nodes: `shrink_s` times its progress now.

    `MOVE_S` times the weight is subtracted for each node that it gains or loses.
    """
    sizes = [sum(compress(row, p.is_open)) for p in spans]
    total = sum(p.seconds * rate(job, size) for p, size in zip(spans, sizes))
    lost = sum(max(0, n - row[c]) for c, n in job.holdings)
    gained = lost + sum(row) - job.size
    return total - change_cost(job, gained, lost)


def change_cost(job: JobAsk, gained: int, lost: int) -> float:
    """The cost to gain or lose so many nodes. A start interrupts no training, so it is free."""
    moved = MOVE_S * job.weight * (gained + lost)
    if is_idle(job) or not moved:
        return moved
    return moved + progress_now(job) * (job.grow_s if gained else job.shrink_s)


def value(problem: Problem, counts: Counts) -> float:
    """The worth of `counts` (job, class) within the look-ahead: the sum over the jobs."""
    spans = periods(problem)
    return sum(row_value(job, spans, row) for job, row in zip(problem.jobs, counts))


def held_counts(problem: Problem) -> Counts:
    """The counts that leave all nodes where they are."""
    return tuple(job.held for job in problem.jobs)


def nodes_to_give(problem: Problem) -> int:
    """The nodes that all jobs together may hold."""
    total = sum(c.capacity for c in problem.classes)
    return total if problem.ceiling_nodes is None else min(total, problem.ceiling_nodes)


def may_gain(job: JobAsk, of_class: int) -> bool:
    """Tell whether the job may get new nodes of the class."""
    return job.may_grow and job.usable[of_class] and not job.is_off_unit


def row_fault(job: JobAsk, row: Row) -> str:
    """Say why the job, seen alone, may not hold `row`. Empty if it may."""
    size = sum(row)
    gains = [*compress(count(), map(gt, row, job.held))]
    if len(row) != len(job.held) or min(row, default=0) < 0:
        return f"{job.name}: {row} is not a row of counts"
    if size and not job.may_have(size):
        few = "" if job.sizes is None else f", of which {sorted(job.sizes)}"
        return f"{job.name}: {size} nodes, allowed are {job.min_nodes} to {job.max_nodes}{few}"
    if job.is_off_unit and any(row) and row != job.held:
        return f"{job.name}: does not hold whole units, so it can only be kept or given up"
    if job.unit > 1 and not job.is_off_unit and any(n % job.unit for n in row):
        return f"{job.name}: {row} is not in units of {job.unit}"
    if gains and any(map(lt, row, job.held)):
        return f"{job.name}: gains and loses nodes at once"
    if not all(may_gain(job, c) for c in gains):
        return f"{job.name}: gains nodes it may not get"
    return ""


def infeasibility(problem: Problem, counts: Counts) -> str:
    """Say why `counts` (job, class) are not allowed. Empty if they are.

    The present counts can be infeasible too: a gang below MIN has to be completed or given up.
    """
    if len(counts) != len(problem.jobs):
        return f"{len(counts)} rows for {len(problem.jobs)} jobs"
    for job, row in zip(problem.jobs, counts):
        fault = row_fault(job, row)
        if fault:
            return fault
    for c, (node_class, column) in enumerate(zip(problem.classes, zip(*counts))):
        used = sum(column)
        if used > node_class.capacity:
            return f"class {c}: {used} of {node_class.capacity} nodes given"
    given = sum(map(sum, counts))
    if given > nodes_to_give(problem):
        return f"{given} nodes given, with the ceiling there are {nodes_to_give(problem)}"
    return ""


def is_feasible(problem: Problem, counts: Counts) -> bool:
    """Tell whether `counts` (job, class) are allowed. If not, `infeasibility` says why."""
    return not infeasibility(problem, counts)


def contradiction(problem: Problem) -> str:
    """Say why the problem contradicts itself, so that no node should move. Empty if it does not."""
    for c, (k, column) in enumerate(zip(problem.classes, zip(*held_counts(problem)))):
        if sum(column) > k.capacity:
            return f"jobs hold {sum(column)} nodes of class {c}, which has {k.capacity}"
    for job in problem.jobs:
        if min(job.held, default=0) < 0 or job.unit < 1 or not 1 <= job.min_nodes <= job.max_nodes:
            return f"job {job.name} has impossible sizes or holdings"
        if job.weight < 0 or not math.isfinite(job.weight):
            return f"job {job.name} has the weight {job.weight}"
    return ""


def size_range(job: JobAsk, most: int) -> Sequence[int]:
    """The sizes that the job may have, in units, with `most` nodes."""
    unit = job.unit
    every = range(-(-job.min_nodes // unit) * unit, min(job.max_nodes, most) + 1, unit)
    return every if job.sizes is None else [n for n in every if n in job.sizes]


def kinks(job: JobAsk, most: int) -> list[int]:
    """The sizes in `size_range` between which progress is linear, first and last included."""
    sizes, unit, liked = size_range(job, most), job.unit, job.preferred
    if job.sizes is not None:
        return [*sizes]
    if not sizes:
        return []
    near = {sizes[0], sizes[-1]}
    near.update(n for n in (liked - unit, liked, liked + unit) if liked and n in sizes)
    for nodes, _ in job.curve.points:
        near |= {nodes // unit * unit, -(-nodes // unit) * unit}
    return sorted(n for n in near if sizes[0] <= n <= sizes[-1])


def corners(job: JobAsk, most: int) -> list[int]:
    """The sizes of `kinks` and those around the present size. Between them value is linear too."""
    sizes = size_range(job, most)
    near = {n for n in (job.size - job.unit, job.size, job.size + job.unit) if n in sizes}
    return sorted(near | set(kinks(job, most)))
