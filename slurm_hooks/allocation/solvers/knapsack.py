"""A size for each of many jobs, of greatest total value, where all nodes are alike.

This is a multiple-choice knapsack. Its linear relaxation (the jobs' concave hulls, steepest first;
Sinha and Zoltners 1979) gives a price per node, an upper bound and a good answer. Only sizes whose
loss against that price is below the gap between the two can be part of a better answer, so the
dynamic programme runs over these few (Dudzinski and Walukiewicz 1987).

A replay asks tens of thousands of times with few different menus, so what depends on a menu alone
is computed once, in `Menu`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

Point = tuple[int, float]
"""A size and what it is worth."""

SHARES = (1 / 256, 1 / 64, 1 / 16, 1 / 4, 1.0)
"""How much of the gap to search, one after the other: an answer within a share is the best of all,
and the work grows faster than the share.
"""

_Layer = dict[int, tuple[float, int]]  # nodes given so far -> (loss, size of the last job)


class TooLarge(Exception):
    """The programme would need more steps than it may take."""


class Menu:
    """The sizes that one job can have: `worth` says what each of them is worth.

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

    def options(self, price: float, allowed: float) -> list[tuple[float, int]]:
        """(loss, size), least loss first, of the sizes within `allowed` of the best at `price`."""
        worth, step = self._worth, self._step
        top = max(value - price * size for size, value in self._hull)
        losses = [(size, top - value + price * size) for size, value in self._corners]
        found = [(max(0.0, loss), size) for size, loss in losses if loss <= allowed]
        for (left, first), (right, last) in zip(losses[1:], losses[2:]):
            if right - left > step and (first <= allowed or last <= allowed):
                for size in range(left + step, right, step):
                    loss = top - worth(size) + price * size
                    if loss <= allowed:
                        found.append((max(0.0, loss), size))
        found.sort()
        return found


def menu_of(table: Mapping[int, float]) -> Menu:
    """The menu of a table of what sizes are worth: 0, then all from the smallest to the largest."""
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

    Exact up to rounding (relative 1e-12). Of equals, what the relaxation found. Raises `TooLarge`
    where a search would take more than `most_steps` updates.
    """
    relaxed = _relax(menus, most)
    allowed = relaxed.bound - relaxed.value - 1e-12 * max(1.0, abs(relaxed.bound))
    if allowed <= 0:
        return relaxed.sizes
    for share in SHARES:
        found = _search(menus, most, (relaxed.price, allowed * share), most_steps)
        if found:
            return found
    return relaxed.sizes


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


def _search(
    menus: Sequence[Menu], most: int, limits: tuple[float, float], most_steps: float
) -> Optional[list[int]]:
    """Sizes within `limits`, a price and the loss allowed at it; the best there are, or None.

    The value of any answer is the bound less each job's loss against its best size at the price,
    less the price of every node left over. So the least total loss wins.
    """
    price, allowed = limits
    known = {id(menu): menu for menu in menus}
    offers = {key: menu.options(price, allowed) for key, menu in known.items()}
    if not all(offers.values()):
        return None  # rounding has put even the best size of a job beyond so small a loss
    layers = _layers([offers[id(menu)] for menu in menus], most, limits, most_steps)
    left_over = {total: loss + price * (most - total) for total, (loss, _) in layers[-1].items()}
    total = min(left_over, key=lambda t: (left_over[t], t), default=None)
    if total is None or left_over[total] > allowed:
        return None
    return _trace(layers, total)


def _layers(
    options: Sequence[list[tuple[float, int]]],
    most: int,
    limits: tuple[float, float],
    most_steps: float,
) -> list[_Layer]:
    """For each number of jobs, the least loss by nodes given, as far as it can still win."""
    price, allowed = limits
    least = _rest([min(size for _, size in choices) for choices in options])
    greatest = _rest([max(size for _, size in choices) for choices in options])
    layers: list[_Layer] = [{0: (0.0, 0)}]
    for at, choices in enumerate(options, start=1):
        most_steps -= len(layers[-1]) * len(choices)
        if most_steps < 0:
            raise TooLarge(f"job {at} of {len(options)}: {len(layers[-1])} states")
        layer: _Layer = {}
        room, enough = most - least[at], most - greatest[at]
        for given, (lost, _) in layers[-1].items():
            for loss, size in choices:
                sum_lost = lost + loss
                if sum_lost > allowed:
                    break
                total = given + size
                if total > room or (
                    total < enough and sum_lost + price * (enough - total) > allowed
                ):
                    continue
                old = layer.get(total)
                if old is None or sum_lost < old[0]:
                    layer[total] = (sum_lost, size)
        layers.append(layer)
    return layers


def _rest(sizes: Sequence[int]) -> list[int]:
    """Sums of the sizes from each position on; one longer than `sizes`."""
    rest = [0]
    for size in reversed(sizes):
        rest.append(rest[-1] + size)
    return rest[::-1]


def _trace(layers: Sequence[_Layer], total: int) -> list[int]:
    """The size of each job on the way to `total` nodes."""
    sizes = []
    for layer in reversed(layers[1:]):
        size = layer[total][1]
        sizes.append(size)
        total -= size
    return sizes[::-1]
