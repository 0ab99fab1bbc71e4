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
from functools import cache

from slurm_hooks.allocation.problem import JobAsk, Problem
from slurm_hooks.allocation.solvers.finish import Choice, Supply, best_rows
from slurm_hooks.allocation.value import (
    Counts,
    Period,
    corners,
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

    Of equal answers, the relaxation's wins. Raises `TooLarge` where a search would take more than
    `most_steps` steps.
    """
    most = min(problem.classes[0].capacity, nodes_to_give(problem))
    spans = periods(problem)
    menus = [_menu(job, most, spans) for job in problem.jobs]
    return tuple((size,) for size in best_sizes(menus, most, most_steps))


def _menu(job: JobAsk, most: int, spans: tuple[Period, ...]) -> Menu:
    @cache
    def worth(size: int) -> float:
        return row_value(job, spans, (size,))

    if job.is_off_unit:
        return Menu(worth, [0, job.size] if job.may_have(job.size) else [0])
    step = job.unit if job.sizes is None else most + 1  # no size between the allowed sizes
    reach = most if may_gain(job, 0) else min(most, job.size)
    return Menu(worth, [0, *corners(job, reach)], step)


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
        self._worth, self._step = worth, step
        self._corners: list[Point] = [(size, worth(size)) for size in corners]
        self.hull = _hull(self._corners)
        self.rises = [(-_slope(a, b), b) for a, b in zip(self.hull, self.hull[1:])]
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
        top = max(value - price * size for size, value in self.hull)
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
    price, bound, chosen = _relax(menus, most)
    allowed = bound - sum(value for _, value in chosen) - 1e-12 * max(1.0, abs(bound))

    def choices(loss: float) -> list[list[Choice]]:
        by_id = {id(menu): menu for menu in menus}
        offers = {key: menu.choices(price, loss) for key, menu in by_id.items()}
        return [offers[id(menu)] for menu in menus]

    rows = best_rows(choices, Supply((most,), (price,)), allowed, most_steps)
    return [size for (size,) in rows] if rows else [size for size, _ in chosen]


def _relax(menus: Sequence[Menu], most: int) -> tuple[float, float, list[Point]]:
    """The linear relaxation: price of a node, upper bound, and a feasible answer (job)."""
    chosen = [menu.hull[0] for menu in menus]
    left, price, bound = most, 0.0, math.nan
    stuck: set[int] = set()
    for slope, at, point in sorted((s, at, p) for at, m in enumerate(menus) for s, p in m.rises):
        if at in stuck:
            continue
        (size, value), reached = chosen[at], point
        if point[0] - size > left:
            stuck.add(at)
            if math.isnan(bound):
                price, bound = -slope, sum(value for _, value in chosen) - slope * left
            reached = menus[at].best_within(size + left) if left else (size, value)
        if reached[1] > value:
            left -= reached[0] - size
            chosen[at] = reached
    total = sum(value for _, value in chosen)
    return price, total if math.isnan(bound) else bound, chosen
