"""Which jobs to look at, and at which size: only where knowing more could change who gets what.

A job begins on its smallest size: without that rate every curve fails. Then it gets an equal share,
which is a second size for free, and from then on its curve counts. As long as what is not known
could be worth more than a look at it costs, the job asks for nodes as if the best of its plausible
curves were true, and the first seconds on them show what is; or, if nothing larger could be worth
it, it goes back to the second size to see the first step over the network. Sizes that a job comes
to by itself are looked at for free, so most of this never has to be done.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Optional, Union

from slurm_hooks.model import Curve, Learned, Why

BUDGET = 0.02
"""The share of a job's node-time that may go into looking."""
CREDIT_S = 1800.0
"""Node-time counts from so many seconds of its share on: a job has to begin with something."""
LEAST_AGE_S = 1800.0
"""What is learned is of use for about as long as the job has lasted, and for at least so long."""
STRIDE = 4
"""A job looks at no more than so many times the largest size that it has seen."""


class Purpose(enum.Enum):
    """What a look is for."""

    SMALLEST = "the rate of its smallest size, against which all others count"
    SECOND = "what the first step over the network costs"
    LARGER = "whether it scales better than is known"


@dataclass(frozen=True)
class Costs:
    """Seconds that a look takes: until a steady rate is known, and the pauses before and after."""

    measure_s: float
    grow_s: float
    shrink_s: float


@dataclass(frozen=True)
class Looker:
    """A job as far as it matters here; sizes in nodes.

    It can run on `least` to `most` nodes in steps of `unit`, has `nodes` now, and would have
    `share` if all had the same. One that `is_hopeless` has told nothing at its size for long, one
    that `is_silent` nothing at any since it has its least. After each change it does `redone_s`
    seconds of its work again.
    """

    name: str
    learned: Learned
    unit: int
    least: int
    most: int
    nodes: int
    share: int
    age_s: float = 0.0
    redone_s: float = 0.0
    is_hopeless: bool = False
    is_silent: bool = False


@dataclass(frozen=True)
class Probe:
    """A look at `nodes` nodes: what for, the node-seconds that it costs at most, and those that it
    could bring (0 where the size is one on the way)."""

    name: str
    nodes: int
    purpose: Purpose
    cost_node_s: float
    gain_node_s: float = 0.0


def wanted(
    jobs: Iterable[Looker], costs: Costs, price: float, budget: float = BUDGET
) -> tuple[Probe, ...]:
    """What is worth looking at now, at most one size of each job, in the order of the jobs.

    `price` is what a node brings elsewhere, in nodes well used (`price_of`).
    """
    found = (judge(job, costs, price, budget) for job in jobs)
    return tuple(each for each in found if isinstance(each, Probe))


def judge(job: Looker, costs: Costs, price: float, budget: float = BUDGET) -> Union[Probe, Why]:
    """What is worth looking at of one job, or why nothing is; as `wanted`."""
    if budget <= 0:
        return Why.NO_BUDGET
    probe = _of_start(job, costs) or _of_value(job, costs, price)
    if probe is None:
        return _unasked(job)
    if job.is_silent or (job.is_hopeless and probe.nodes == job.nodes):
        return Why.SILENT
    return probe if is_affordable(probe, job, budget) else Why.SPENT


def _unasked(job: Looker) -> Why:
    if _has_family_to_go_by(job):
        return Why.FAMILY
    is_waiting = job.learned.curve is None and job.learned.sizes_seen and job.most > job.least
    return Why.SHARE if is_waiting else Why.NOT_WORTH_IT


def _has_family_to_go_by(job: Looker) -> bool:
    """True if its family is known, and it is young or has shown nothing itself."""
    learned = job.learned
    return learned.is_shared and (job.age_s < LEAST_AGE_S or not learned.sizes_seen)


def is_affordable(probe: Probe, job: Looker, budget: float) -> bool:
    """True if the job has spent less than its budget with this look, too, or it goes on."""
    if not probe.cost_node_s:
        return budget > 0
    learned = job.learned
    had = learned.node_s + CREDIT_S * max(job.share, job.unit)
    return learned.probed_node_s + probe.cost_node_s <= budget * had


def _of_start(job: Looker, costs: Costs) -> Optional[Probe]:
    """The smallest size, as long as the job has not shown it: the others count against it."""
    seen = job.learned.sizes_seen
    is_needed = job.most > job.least and not job.learned.is_shared
    if not is_needed or (seen and seen[0] <= job.least):
        return None
    return _smaller(job, job.least, Purpose.SMALLEST, costs)


def _of_value(job: Looker, costs: Costs, price: float) -> Optional[Probe]:
    """More nodes than its curve asks for, or one unit more than its least, if that could pay."""
    learned = job.learned
    if learned.curve is None or not learned.sizes_seen or _has_family_to_go_by(job):
        return None
    table = table_of(learned, job.unit, job.least, min(job.most, STRIDE * learned.sizes_seen[-1]))
    second = _second(job, costs)
    is_there = second is not None and second.nodes == job.nodes
    larger = None if is_there else _larger(job, costs, table.boldest(price))
    probe = larger or second
    if probe is None:
        return None
    gain = max(job.age_s, LEAST_AGE_S) * table.value_of_knowing(price)
    is_worth_it = gain > _least_gain(probe, job, costs)
    return replace(probe, gain_node_s=gain) if is_worth_it else None


def _least_gain(probe: Probe, job: Looker, costs: Costs) -> float:
    """What the look costs, or would have if the job had not come to its size anyway."""
    seconds = costs.measure_s + costs.grow_s + costs.shrink_s
    return max(probe.cost_node_s, seconds * (probe.nodes - job.learned.sizes_seen[-1]))


def _larger(job: Looker, costs: Costs, nodes: int) -> Optional[Probe]:
    """More than it has shown; one that has more than that already waits to see what it brings."""
    largest = job.learned.sizes_seen[-1]
    if nodes <= largest:
        return None
    if job.nodes > largest:
        return Probe(job.name, job.nodes, Purpose.LARGER, 0.0)
    cost = (costs.measure_s + costs.grow_s + costs.shrink_s) * (nodes - job.nodes)
    return Probe(job.name, nodes, Purpose.LARGER, cost + _redone(job, nodes, costs))


def _redone(job: Looker, nodes: int, costs: Costs) -> float:
    """Node-seconds of work done again because a look begins and ends; before its end there is no
    more of it than the look is long."""
    return job.redone_s * job.nodes + min(job.redone_s, costs.measure_s) * nodes


def _second(job: Looker, costs: Costs) -> Optional[Probe]:
    second = job.least + job.unit
    if second in job.learned.sizes_seen or second > job.most:
        return None
    return _smaller(job, second, Purpose.SECOND, costs)


def _smaller(job: Looker, nodes: int, purpose: Purpose, costs: Costs) -> Probe:
    """A look at fewer nodes than it would have: no node works better, others use the rest, and so
    the pauses, and what is done again, are what costs.

    A job that does not run yet pauses once more, since it grows later. One that is there already
    has paid.
    """
    if job.nodes == nodes:
        return Probe(job.name, nodes, purpose, 0.0)
    back_s = costs.shrink_s if job.nodes > nodes else 0.0
    cost = (costs.grow_s + back_s) * max(job.share, job.nodes)
    return Probe(job.name, nodes, purpose, cost + _redone(job, nodes, costs))


def price_of(jobs: Iterable[Looker], nodes: int) -> float:
    """What the last of `nodes` nodes brings if all are well shared out, in nodes well used.

    From the concave hulls of the jobs' curves, the steepest pieces first (the linear relaxation of
    the knapsack, Sinha and Zoltners, Operations Research 27, 1979). A job without a curve counts
    as linear up to its share. 0 if the jobs cannot use so many.
    """
    pieces = sorted((piece for job in jobs for piece in _pieces(job)), reverse=True)
    for slope, width in pieces:
        nodes -= width
        if nodes < 0:
            return min(max(slope, 0.0), 1.0)
    return 0.0


def _pieces(job: Looker) -> list[tuple[float, int]]:
    """The slopes of the hull and for how many nodes, from nothing to its most."""
    curve = job.learned.curve
    base = curve(job.unit) / job.unit if curve else 0.0
    if curve is None or base <= 0:
        return [(1.0, min(max(job.share, job.least), job.most))]
    hull: list[tuple[int, float]] = [(0, 0.0)]
    for n, value in curve.points:
        if not job.least <= n <= job.most:
            continue
        point = (n, value / base)
        while len(hull) > 1 and _slope(hull[-2], point) >= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(point)
    return [(_slope(a, b), b[0] - a[0]) for a, b in zip(hull, hull[1:])]


def _slope(a: tuple[int, float], b: tuple[int, float]) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])


def speedup(curve: Curve, nodes: float, unit: int) -> float:
    """The rate at `nodes` in nodes well used: that of one unit counts as its nodes."""
    base = curve(unit) / unit
    return curve(nodes) / base if base > 0 else 0.0


@dataclass(frozen=True)
class Table:
    """What the plausible curves say: nodes well used, `rows` (curve, size), at `sizes` in nodes."""

    sizes: tuple[int, ...]
    rows: tuple[tuple[float, ...], ...]

    def value_of_knowing(self, price: float) -> float:
        """Nodes well used that are lost because one size has to do for all plausible curves.

        The expected value of perfect information (Raiffa and Schlaifer, Applied Statistical
        Decision Theory, 1961) where further nodes can be had at `price`: E max_n (S(n) - p n) less
        max_n E (S(n) - p n).
        """
        if not self.rows or not self.sizes:
            return 0.0
        spent = [price * n for n in self.sizes]
        worth = [[s - p for s, p in zip(row, spent)] for row in self.rows]
        perfect = math.fsum(map(max, worth))
        return max(0.0, perfect - max(map(math.fsum, zip(*worth)))) / len(self.rows)

    def boldest(self, price: float) -> int:
        """The size that would be best if the best of what is plausible were true; 0 if unknown."""
        if not self.rows or not self.sizes:
            return 0
        best = map(max, zip(*self.rows))
        return max((s - price * n, -n, n) for s, n in zip(best, self.sizes))[2]


def table_of(learned: Learned, unit: int, least: int, most: int) -> Table:
    """The points of the plausible curves from `least` to `most` nodes; they have the same sizes."""
    if not learned.plausible:
        return Table((), ())
    points = learned.plausible[0].points
    at = [k for k, (n, _) in enumerate(points) if least <= n <= most]
    rows = []
    for curve in learned.plausible:
        base = curve(unit) / unit
        if base > 0 and len(curve.points) == len(points):
            rows.append(tuple(curve.points[k][1] / base for k in at))
    return Table(tuple(points[k][0] for k in at), tuple(rows))


def optimistic(learned: Learned, unit: int) -> Curve:
    """The best speed-up that is plausible at each size, times the rate of a node that is known.

    Raises ValueError if nothing is.
    """
    if not learned.plausible:
        raise ValueError("no plausible curve")
    rate = learned.curve(unit) / unit if learned.curve else 1.0
    sizes = [n for n, _ in learned.plausible[0].points]
    points = ((n, rate * max(speedup(c, n, unit) for c in learned.plausible)) for n in sizes)
    return Curve(tuple(points))
