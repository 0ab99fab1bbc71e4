"""Picks a size for each of many jobs, of greatest total value, where all nodes are equal.

This is a multiple-choice knapsack. Its linear relaxation (the jobs' concave hulls, steepest first,
Sinha and Zoltners 1979) gives the price of a node, an upper bound and a good answer. `finish`
searches the sizes that this price leaves open.

A replay solves tens of thousands of problems with few different menus. So `Menu` computes once all
values that depend on a menu alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from slurm_hooks.allocation.problem import JobAsk, Problem
from slurm_hooks.allocation.solvers.finish import Choice, Supply, best_rows
from slurm_hooks.allocation.value import (
    Counts,
    Period,
    corners,
    is_off_unit,
    may_gain,
    nodes_to_give,
    periods,
    row_value,
)

MOST_STEPS = 20_000_000
"""The steps after which the search gives up: about ten seconds of Python."""
Point = tuple[int, float]
"""A size and its worth."""


def solve_knapsack(problem: Problem, most_steps: int = MOST_STEPS) -> Counts:
    """The counts (job, class) of greatest value of a problem with a single class, exactly.

    Of equal answers, the relaxation's wins. Raises ValueError for another number of classes and
    `TooLarge` where a search would take more than `most_steps` steps.
    """
    if len(problem.classes) != 1:
        raise ValueError(f"one class is needed, the problem has {len(problem.classes)}")
    most = min(problem.classes[0].capacity, nodes_to_give(problem))
    spans = periods(problem)
    menus = [_menu(job, most, spans) for job in problem.jobs]
    return tuple((size,) for size in best_sizes(menus, most, most_steps))


def _menu(job: JobAsk, most: int, spans: tuple[Period, ...]) -> Menu:
    @cache
    def worth(size: int) -> float:
        return row_value(job, spans, (size,))

    step = job.unit if job.sizes is None else most + 1  # no size between the allowed sizes
    return Menu(worth, _corners(job, most), step)


def _corners(job: JobAsk, most: int) -> list[int]:
    """0 and the sizes between which the job's value is linear: kinks of progress and of costs."""
    held = job.size
    if is_off_unit(job):
        return [0, held] if job.may_have(held) else [0]
    return [0, *corners(job, most if may_gain(job, 0) else min(most, held))]


class Menu:
    """The sizes that a job can have. `worth` gives the value of each.

    `corners` are sizes, rising from 0. Between two of them every size in steps of `step` is allowed
    and value is linear, but there is no size between 0 and the next corner. Raises ValueError if
    size 0 is missing.
    """

    def __init__(
        self, worth: Callable[[int], float], corners: Sequence[int], step: int = 1
    ) -> None:
        if not corners or corners[0] != 0:
            raise ValueError("size 0 must be allowed")
        self._worth = worth
        self._corners: list[Point] = [(size, worth(size)) for size in corners]
        self._step = step
        self._hull = _hull(self._corners)
        self.nothing = self._hull[0]
        self.rises = [(-_slope(a, b), b) for a, b in zip(self._hull, self._hull[1:])]
        """(minus the slope, point reached) along the hull."""

    def best_within(self, most: int) -> Point:
        """The best point of at most `most` nodes, the smallest of equals."""
        fits = [point for point in self._corners if point[0] <= most]
        if 1 < len(fits) < len(self._corners):
            last, _ = fits[-1]
            size = last + (most - last) // self._step * self._step
            fits.append((size, self._worth(size)))
        return max(fits, key=lambda point: (point[1], -point[0]))

    def choices(self, price: float, allowed: float) -> list[Choice]:
        """The sizes within `allowed` of the best at `price`, the least loss first."""
        worth, step = self._worth, self._step
        top = max(value - price * size for size, value in self._hull)
        losses = [(size, top - value + price * size) for size, value in self._corners]
        choices = [(max(0.0, loss), size) for size, loss in losses if loss <= allowed]
        for (left, first), (right, last) in zip(losses[1:], losses[2:]):
            if right - left > step and (first <= allowed or last <= allowed):
                for size in range(left + step, right, step):
                    loss = top - worth(size) + price * size
                    if loss <= allowed:
                        choices.append((max(0.0, loss), size))
        choices.sort()
        return [Choice(loss, (size,)) for loss, size in choices]


def menu_of(table: Mapping[int, float]) -> Menu:
    """The menu of a table of sizes and values: 0, then all from the smallest to the largest."""
    sizes, slack = list(table), 1e-12 * max([1.0, *map(abs, table.values())])
    bends = [n for n in sizes[2:-1] if abs(table[n - 1] - 2 * table[n] + table[n + 1]) > slack]
    return Menu(table.__getitem__, [*sizes[:2], *bends, *sizes[2:][-1:]])


def _hull(corners: Sequence[Point]) -> list[Point]:
    """The upper concave hull, as far as it rises."""
    hull = [corners[0]]
    for point in corners[1:]:
        while len(hull) > 1 and _slope(hull[-2], point) >= _slope(hull[-2], hull[-1]):
            hull.pop()
        if point[1] > hull[-1][1]:
            hull.append(point)
    return hull


def _slope(a: Point, b: Point) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])


def best_sizes(menus: Sequence[Menu], most: int, most_steps: float = math.inf) -> list[int]:
    """The size of each job, at most `most` nodes together, with the greatest total value.

    It is exact up to rounding (relative 1e-12). Of equal answers, the relaxation's wins. Raises
    `TooLarge` where a search would take more than `most_steps` steps.
    """
    relaxed = _relax(menus, most)
    allowed = relaxed.bound - relaxed.value - 1e-12 * max(1.0, abs(relaxed.bound))
    if allowed <= 0:
        return relaxed.sizes

    def choices(loss: float) -> list[list[Choice]]:
        by_id = {id(menu): menu for menu in menus}
        offers = {key: menu.choices(relaxed.price, loss) for key, menu in by_id.items()}
        return [offers[id(menu)] for menu in menus]

    rows = best_rows(choices, Supply((most,), (relaxed.price,)), allowed, most_steps)
    return [size for (size,) in rows] if rows else relaxed.sizes


@dataclass(frozen=True)
class _Relaxed:
    """The linear relaxation: price of a node, upper bound, and a feasible answer (job)."""

    price: float
    bound: float
    sizes: list[int]
    value: float


def _relax(menus: Sequence[Menu], most: int) -> _Relaxed:
    steps = [(slope, at, point) for at, menu in enumerate(menus) for slope, point in menu.rises]
    steps.sort()
    chosen = [menu.nothing for menu in menus]
    left, price, bound = most, 0.0, math.nan
    stuck: set[int] = set()
    for slope, at, point in steps:
        if at in stuck:
            continue
        needed = point[0] - chosen[at][0]
        if needed <= left:
            left -= needed
            chosen[at] = point
            continue
        if math.isnan(bound):
            price = -slope
            bound = sum(value for _, value in chosen) + price * left
        stuck.add(at)
        if left:
            filled = menus[at].best_within(chosen[at][0] + left)
            if filled[1] > chosen[at][1]:
                left -= filled[0] - chosen[at][0]
                chosen[at] = filled
    total = sum(value for _, value in chosen)
    sizes = [size for size, _ in chosen]
    return _Relaxed(price, total if math.isnan(bound) else bound, sizes, total)
