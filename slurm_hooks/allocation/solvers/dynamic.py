"""The exact answer where all nodes are alike: a dynamic programme over counts.

With one class the problem is a multiple-choice knapsack: each job picks one size, sizes add up to
at most the nodes there are. Its linear relaxation (the jobs' concave hulls, steepest first; Sinha
and Zoltners 1979) gives a price per node, an upper bound and a good answer; only sizes whose loss
against that price is below the gap between the two can be part of a better answer, so the
programme runs over these few (Dudzinski and Walukiewicz 1987). It is the oracle in tests, the
solver for one class, and must not know the other solvers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.allocation.problem import JobAsk, Problem
from slurm_hooks.allocation.value import (
    Counts,
    Period,
    corners,
    is_off_unit,
    may_gain,
    nodes_to_give,
    periods,
    row_value,
    size_range,
)

MOST_STEPS = 20_000_000
"""Updates after which the programme gives up: some ten seconds of Python."""


class TooLarge(Exception):
    """The programme would need more than `MOST_STEPS` updates."""


@dataclass(frozen=True)
class _Point:
    """A size and its value."""

    size: int
    value: float


class _Menu:
    """The sizes of one job to choose from, and what each is worth.

    Value is linear over sizes between neighbours in `points`, except from 0 to the next one.
    """

    def __init__(self, job: JobAsk, most: int, spans: tuple[Period, ...]) -> None:
        self._job = job
        self._spans = spans
        self.points = tuple(_Point(n, self.value(n)) for n in _corners(job, most))
        self.hull = _hull(self.points)

    def value(self, size: int) -> float:
        """What the job is worth at `size`."""
        return row_value(self._job, self._spans, (size,))

    def best_below(self, size: int) -> _Point:
        """The best point of at most `size` nodes, any size allowed, the smallest of equals."""
        fits = [p for p in self.points if p.size <= size]
        sizes = size_range(self._job, size)
        if sizes and fits[-1].size < sizes[-1] and fits[-1] is not self.points[-1]:
            fits.append(_Point(sizes[-1], self.value(sizes[-1])))
        return max(fits, key=lambda p: (p.value, -p.size))

    def options(self, price: float, loss: float) -> list[tuple[float, int]]:
        """(loss, size) of all sizes that lose at most `loss` against the best one at `price`."""
        top = max(p.value - price * p.size for p in self.points)
        found = []
        for at, point in enumerate(self.points):
            here = top - (point.value - price * point.size)
            if here <= loss:
                found.append((max(0.0, here), point.size))
            if at and at + 1 < len(self.points):
                after = self.points[at + 1]
                there = top - (after.value - price * after.size)
                found.extend(self._between(point, after, (here, there), loss))
        return sorted(found)

    def _between(
        self, left: _Point, right: _Point, losses: tuple[float, float], most: float
    ) -> list[tuple[float, int]]:
        if min(losses) > most:
            return []
        slope = (losses[1] - losses[0]) / (right.size - left.size)
        inner = range(left.size + self._job.unit, right.size, self._job.unit)
        priced = ((max(0.0, losses[0] + slope * (n - left.size)), n) for n in inner)
        return [(loss, n) for loss, n in priced if loss <= most]


def _corners(job: JobAsk, most: int) -> list[int]:
    """0 and the sizes between which the job's value is linear: kinks of progress and of costs."""
    held = job.size
    if is_off_unit(job):
        return [0, held] if job.min_nodes <= held <= job.max_nodes else [0]
    return [0, *corners(job, most if may_gain(job, 0) else min(most, held))]


def _hull(points: tuple[_Point, ...]) -> list[_Point]:
    """The upper concave hull, as far as it rises."""
    hull: list[_Point] = []
    for p in points:
        while len(hull) > 1 and _slope(hull[-2], p) >= _slope(hull[-2], hull[-1]):
            hull.pop()
        if not hull or p.value > hull[-1].value:
            hull.append(p)
    return hull


def _slope(a: _Point, b: _Point) -> float:
    return (b.value - a.value) / (b.size - a.size)


@dataclass(frozen=True)
class _Relaxed:
    """The linear relaxation: price of a node, upper bound, and a feasible answer (job)."""

    price: float
    bound: float
    sizes: list[int]
    value: float


def _relax(menus: list[_Menu], most: int) -> _Relaxed:
    steps = [
        (-_slope(a, b), at, b)
        for at, menu in enumerate(menus)
        for a, b in zip(menu.hull, menu.hull[1:])
    ]
    steps.sort(key=lambda step: step[:2])
    chosen = [menu.hull[0] for menu in menus]
    left, price, bound = most, 0.0, math.nan
    stuck = set()
    for slope, at, point in steps:
        needed = point.size - chosen[at].size
        if at in stuck:
            continue
        if needed <= left:
            left -= needed
            chosen[at] = point
            continue
        if math.isnan(bound):
            price = -slope
            bound = sum(p.value for p in chosen) + price * left
        stuck.add(at)
        filled = menus[at].best_below(chosen[at].size + left)
        if filled.value > chosen[at].value:
            left -= filled.size - chosen[at].size
            chosen[at] = filled
    total = sum(p.value for p in chosen)
    return _Relaxed(price, total if math.isnan(bound) else bound, [p.size for p in chosen], total)


def solve_dynamic(problem: Problem, most_steps: int = MOST_STEPS) -> Counts:
    """The counts (job, class) of greatest value of a problem with one class, exactly.

    Of equals, what the relaxation found. Raises ValueError for any other number of classes and
    `TooLarge` where the search would take more than `most_steps` updates.
    """
    if len(problem.classes) != 1:
        raise ValueError(f"one class is needed, the problem has {len(problem.classes)}")
    most = min(problem.classes[0].capacity, nodes_to_give(problem))
    spans = periods(problem)
    menus = [_Menu(job, most, spans) for job in problem.jobs]
    relaxed = _relax(menus, most)
    better = _search(menus, most, relaxed, most_steps)
    return tuple((n,) for n in (better or relaxed.sizes))


def _search(
    menus: list[_Menu], most: int, relaxed: _Relaxed, most_steps: int
) -> Optional[list[int]]:
    """Sizes that beat the relaxation's answer, the best there are; None if there are none.

    The value of any answer is the bound less each job's loss against its best size at the price,
    less the price of every node left over. So the least total loss wins.
    """
    allowed = relaxed.bound - relaxed.value - 1e-12 * max(1.0, abs(relaxed.bound))
    if allowed <= 0:
        return None
    options = [menu.options(relaxed.price, allowed) for menu in menus]
    if not all(options):
        return None
    layers = _layers(options, most, (relaxed.price, allowed), most_steps)
    ends = layers[-1]
    left_over = {t: loss + relaxed.price * (most - t) for t, (loss, _) in ends.items()}
    total = min(left_over, key=lambda t: (left_over[t], t), default=None)
    if total is None or left_over[total] > allowed:
        return None
    return _trace(layers, total)


_Layer = dict[int, tuple[float, int]]  # nodes given so far -> (loss, size of the last job)


def _layers(
    options: list[list[tuple[float, int]]],
    most: int,
    limits: tuple[float, float],
    most_steps: int,
) -> list[_Layer]:
    """For each number of jobs, the least loss by nodes given, as far as it can still win."""
    price, allowed = limits
    least, greatest = _rest(options, min), _rest(options, max)
    layers: list[_Layer] = [{0: (0.0, 0)}]
    for at, choices in enumerate(options, start=1):
        most_steps -= len(layers[-1]) * len(choices)
        if most_steps < 0:
            raise TooLarge(f"job {at} of {len(options)}: {len(layers[-1])} states")
        layer: _Layer = {}
        for given, (lost, _) in layers[-1].items():
            for loss, size in choices:
                total, sum_lost = given + size, lost + loss
                if sum_lost > allowed:
                    break
                spare = most - total - greatest[at]
                if total + least[at] > most or sum_lost + price * max(0, spare) > allowed:
                    continue
                if total not in layer or sum_lost < layer[total][0]:
                    layer[total] = (sum_lost, size)
        layers.append(layer)
    return layers


def _rest(options: list[list[tuple[float, int]]], pick: Callable[..., int]) -> list[int]:
    """The least or greatest number of nodes that the jobs from each position on can take."""
    rest = [0]
    for choices in reversed(options):
        rest.append(rest[-1] + pick(size for _, size in choices))
    return rest[::-1]


def _trace(layers: list[_Layer], total: int) -> list[int]:
    sizes = []
    for layer in reversed(layers[1:]):
        size = layer[total][1]
        sizes.append(size)
        total -= size
    return sizes[::-1]
