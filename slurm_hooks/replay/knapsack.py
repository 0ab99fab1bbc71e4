"""Sizes of greatest total value where all nodes are alike, exactly and fast enough for a replay.

A replay decides tens of thousands of times over few different tables of values, so what depends
on a table alone (corners, concave hull) is computed once, in `Menu`. The search is that of the
allocator's dynamic programme: the linear relaxation gives a price and a bound (Sinha and Zoltners
1979), and only sizes whose loss against the price is below the gap can belong to a better answer
(Dudzinski and Walukiewicz 1987). This module must not know what the values mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Optional

_Step = tuple[float, int, float]  # minus the slope, size afterwards, value afterwards
_Layer = dict[int, tuple[float, int]]  # nodes given so far -> (loss, size of the last job)

NEVER = -math.inf

SHARES = (1 / 256, 1 / 64, 1 / 16, 1 / 4, 1.0)
"""How much of the gap to search, one after the other: an answer within a share is the best of all,
and the work grows faster than the share.
"""


class Menu:
    """What each size is worth to one job: `values[n]` for n nodes, `NEVER` where not allowed.

    Size 0 must be allowed. Raises ValueError if it is not.
    """

    def __init__(self, values: Sequence[float]) -> None:
        if not values or values[0] == NEVER:
            raise ValueError("size 0 must be allowed")
        last = max(n for n, v in enumerate(values) if v > NEVER)
        self.values = list(values[: last + 1])
        self.corners = _corners(self.values)
        self.hull = _hull(self.values, self.corners)
        self.steps: list[_Step] = [
            (-(self.values[b] - self.values[a]) / (b - a), b, self.values[b])
            for a, b in zip(self.hull, self.hull[1:])
        ]

    def best_within(self, most: int) -> int:
        """The best size of at most `most` nodes, the smallest of equals."""
        top = min(most, len(self.values) - 1)
        fits = [n for n in self.corners if n <= top]
        if fits[-1] < top:
            fits.append(top)
        return max(fits, key=lambda n: (self.values[n], -n))

    def options(self, price: float, allowed: float) -> list[tuple[float, int]]:
        """(loss, size), least loss first, of the sizes within `allowed` of the best at `price`."""
        values, corners = self.values, self.corners
        top = max(values[n] - price * n for n in self.hull)
        losses = [top - values[n] + price * n for n in corners]
        found = [(max(0.0, loss), n) for loss, n in zip(losses, corners) if loss <= allowed]
        for at in range(len(corners) - 1):
            left, right = corners[at], corners[at + 1]
            if right - left > 1 and (losses[at] <= allowed or losses[at + 1] <= allowed):
                for n in range(left + 1, right):
                    loss = top - values[n] + price * n
                    if loss <= allowed:
                        found.append((max(0.0, loss), n))
        found.sort()
        return found


def _corners(values: Sequence[float]) -> list[int]:
    """The sizes between which values are linear; the sides of a gap are corners too."""
    last = len(values) - 1
    slack = 1e-12 * max([1.0, *(abs(v) for v in values if v > NEVER)])
    found = [0]
    for n in range(1, last):
        before, here, after = values[n - 1 : n + 2]
        if here == NEVER:
            continue
        if NEVER in (before, after) or abs(before - 2 * here + after) > slack:
            found.append(n)
    return found if last == 0 else [*found, last]


def _hull(values: Sequence[float], corners: Sequence[int]) -> list[int]:
    """The sizes of the upper concave hull, as far as it rises."""
    hull = [0]
    for n in corners[1:]:
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (values[n] - values[a]) * (b - a) < (values[b] - values[a]) * (n - a):
                break
            hull.pop()
        if values[n] > values[hull[-1]]:
            hull.append(n)
    return hull


def best_sizes(menus: Sequence[Menu], most: int) -> list[int]:
    """The size of each job, at most `most` nodes together, with the greatest total value.

    Exact up to rounding (relative 1e-12). Of equals, what the relaxation found.
    """
    sizes, worth, bound, price = _relax(menus, most)
    allowed = bound - worth - 1e-12 * max(1.0, abs(bound))
    if allowed <= 0:
        return sizes
    for share in SHARES:
        found = _search(menus, most, price, allowed * share)
        if found:
            return found
    return sizes


def _relax(menus: Sequence[Menu], most: int) -> tuple[list[int], float, float, float]:
    """A good answer, its value, a bound on any answer, and the price of a node."""
    steps = [(slope, at, size) for at, m in enumerate(menus) for slope, size, _ in m.steps]
    steps.sort()
    sizes = [0] * len(menus)
    left, price, bound = most, 0.0, math.nan
    stuck: set[int] = set()
    for slope, at, size in steps:
        if at in stuck:
            continue
        needed = size - sizes[at]
        if needed <= left:
            left -= needed
            sizes[at] = size
            continue
        if math.isnan(bound):
            price = -slope
            bound = sum(m.values[n] for m, n in zip(menus, sizes)) + price * left
        stuck.add(at)
        if left:
            filled = menus[at].best_within(sizes[at] + left)
            if menus[at].values[filled] > menus[at].values[sizes[at]]:
                left -= filled - sizes[at]
                sizes[at] = filled
    worth = sum(m.values[n] for m, n in zip(menus, sizes))
    return sizes, worth, worth if math.isnan(bound) else bound, price


def _search(menus: Sequence[Menu], most: int, price: float, allowed: float) -> Optional[list[int]]:
    """Sizes that lose less than `allowed` against the bound, the least there is; or None."""
    known: dict[int, list[tuple[float, int]]] = {}
    options = []
    for menu in menus:
        if id(menu) not in known:
            known[id(menu)] = menu.options(price, allowed)
        options.append(known[id(menu)])
    layers = _layers(options, most, price, allowed)
    ends = layers[-1]
    if not ends:
        return None
    total = min(ends, key=lambda t: (ends[t][0] + price * (most - t), t))
    if ends[total][0] + price * (most - total) > allowed:
        return None
    sizes = []
    for layer in reversed(layers[1:]):
        size = layer[total][1]
        sizes.append(size)
        total -= size
    return sizes[::-1]


def _layers(
    options: Sequence[list[tuple[float, int]]], most: int, price: float, allowed: float
) -> list[_Layer]:
    """For each number of jobs, the least loss by nodes given, as far as it can still win."""
    least = _rest([min(size for _, size in choices) for choices in options])
    greatest = _rest([max(size for _, size in choices) for choices in options])
    layers: list[_Layer] = [{0: (0.0, 0)}]
    for at, choices in enumerate(options, start=1):
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
