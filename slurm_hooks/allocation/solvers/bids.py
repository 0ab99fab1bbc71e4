"""Finds the best row of counts, exactly, for a job at given prices of nodes.

The search over prices calls this thousands of times, so sizes are counted in units and kept in
plain lists, a position for each size.

A row is filled from the classes that stay open longest to those that close first. Among classes
that close together the cheapest come first. Sizes are then a sum over a chain, which a small
dynamic programme maximises for any shape of the curve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from operator import add
from typing import NamedTuple, Optional

from slurm_hooks.allocation.problem import JobAsk
from slurm_hooks.allocation.value import (
    Period,
    Row,
    change_cost,
    is_off_unit,
    may_gain,
    rate,
    row_value,
    size_range,
)

NEVER = -math.inf
Order = Sequence[Sequence[int]]
"""Classes by depth (the number of periods for which they stay open), the cheapest first."""


@dataclass(frozen=True)
class Bid:
    """A row (class), its value, and its value less its cost."""

    row: Row
    value: float
    surplus: float


class Lot(NamedTuple):
    """Up to `units` of a class, each at `price`."""

    of_class: int
    price: float
    units: int


@dataclass
class Mode:
    """A way to choose: from the held nodes, or from held and more. Positions are added units.

    `gains[d]` is the gain of each position in the period in which only classes open for d periods
    and longer are open. `last` is the gain of the whole size, NEVER where it is not allowed.
    """

    base: Row
    most: int
    classes: list[frozenset[int]]  # by depth
    gains: list[list[float]]
    last: list[float]


@dataclass
class _Trail:
    """The lots and values at each step, to find the way back from the best position."""

    steps: list[tuple[list[Lot], list[float]]] = field(default_factory=list)
    first: list[Lot] = field(default_factory=list)

    def back(self, at: int, row: list[int], unit: int) -> None:
        """Add the parts of the position `at` to `row`."""
        for lots, before in reversed(self.steps):
            price, units = lots[0].price, sum(lot.units for lot in lots)
            choices = range(max(0, at - len(before) + 1), min(units, at) + 1)
            left = [before[at - k] - k * price for k in choices]
            taken = choices[left.index(max(left))]
            _hand_out(lots, taken, row, unit)
            at -= taken
        _hand_out(self.first, at, row, unit)


def _hand_out(lots: Sequence[Lot], units: int, row: list[int], unit: int) -> None:
    """Add so many units from the lots, in their order, to `row` (class)."""
    for lot in lots:
        taken = min(lot.units, units)
        row[lot.of_class] += taken * unit
        units -= taken


class Bidder:
    """A job that answers prices. `caps` is the capacity of each class in nodes.

    `zero` is its bid for no nodes. It keeps some of its nodes (`held`), or all of them and gets
    more (`more`), up to `limit` nodes of each class. Without `held` it is kept or given up.
    """

    def __init__(self, job: JobAsk, spans: Sequence[Period], caps: Sequence[int]) -> None:
        self.job = job
        self._spans = spans
        self._caps = caps
        self.limit = [cap - held for cap, held in zip(caps, job.held)]
        depths = depths_of(spans, len(caps))
        self.zero = Bid((0,) * len(caps), *[row_value(job, spans, (0,) * len(caps))] * 2)
        self.held: Optional[Mode] = None
        self.more: Optional[Mode] = None
        if not is_off_unit(job):
            most = min(job.max_nodes, sum(caps)) // job.unit
            whole = [rate(job, n * job.unit) for n in range(most + 1)]
            self.held = self._held_mode(depths, whole)
            self.more = self._more_mode(depths, whole)

    def answer(
        self, prices: Sequence[float], order: Order, free: Optional[Sequence[int]] = None
    ) -> Bid:
        """The row of greatest surplus at `prices` (class), classes tried in `order`.

        With `free`, it gets at most that many new nodes of a class. Of equals, the row of fewer
        nodes.
        """
        job = self.job
        if self.held is None:
            kept = self.kept(prices)
            return kept if kept and kept.surplus > self.zero.surplus else self.zero
        best = self.zero
        if job.size:
            best = self._from(self.held, prices, order, job.held, best)
        if self.more is not None:
            limit = self.limit if free is None else list(map(min, self.limit, free))
            best = self._from(self.more, prices, order, limit, best)
        return best

    def kept(self, prices: Sequence[float]) -> Optional[Bid]:
        """The row held now, if the job may run on it."""
        job = self.job
        if not job.may_have(job.size):
            return None
        worth = row_value(job, self._spans, job.held)
        return Bid(job.held, worth, worth - sum(p * n for p, n in zip(prices, job.held)))

    def _held_mode(self, depths: Sequence[int], whole: list[float]) -> Optional[Mode]:
        job = self.job
        most = job.size // job.unit
        none = (0,) * len(depths)
        classes = self._by_depth(depths, [c for c, n in enumerate(job.held) if n])
        allowed = set(size_range(job, job.size)) | {0}
        last = [
            -change_cost(job, 0, job.size - n * job.unit) if n * job.unit in allowed else NEVER
            for n in range(most + 1)
        ]
        return Mode(none, most, classes, self._gains([0] * len(classes), most, whole), last)

    def _more_mode(self, depths: Sequence[int], whole: list[float]) -> Optional[Mode]:
        job = self.job
        usable = [c for c in range(len(depths)) if may_gain(job, c)]
        room = sum(self._caps[c] - job.held[c] for c in usable)
        most = min(job.max_nodes - job.size, room) // job.unit
        if most <= 0:
            return None
        classes = self._by_depth(depths, usable)
        below = [
            sum(n for n, depth in zip(job.held, depths) if depth >= d) // job.unit
            for d in range(len(classes))
        ]
        sizes = [job.size + n * job.unit for n in range(most + 1)]
        last = [
            -change_cost(job, n - job.size, 0) if job.may_have(n) and n > job.size else NEVER
            for n in sizes
        ]
        return Mode(job.held, most, classes, self._gains(below, most, whole), last)

    def _by_depth(self, depths: Sequence[int], chosen: list[int]) -> list[frozenset[int]]:
        return [
            frozenset(c for c in chosen if depths[c] == depth)
            for depth in range(len(self._spans) + 1)
        ]

    def _gains(self, below: list[int], most: int, whole: list[float]) -> list[list[float]]:
        """The worth of each number of added units in each period (depth, position)."""
        whole = whole + [0.0] * (max(below) + most + 1 - len(whole))
        gains: list[list[float]] = [[]]
        for at, span in enumerate(self._spans):
            start = below[at + 1]
            part = whole[start : start + most + 1]
            gains.append([span.seconds * w for w in part])
        return gains

    def _from(
        self,
        mode: Optional[Mode],
        prices: Sequence[float],
        order: Order,
        limit: Sequence[int],
        best: Bid,
    ) -> Bid:
        """The better of `best` and the best row of the mode within `limit` (class)."""
        if mode is None:
            return best
        trail = _Trail()
        values = self._climb(mode, prices, order, limit, trail)
        values = list(map(add, values, mode.last[: len(values)]))
        paid = sum(p * n for p, n in zip(prices, mode.base) if n)
        top = max(values)
        if top - paid <= best.surplus + 1e-12:
            return best
        row = list(mode.base)
        trail.back(values.index(top), row, self.job.unit)
        counts = tuple(row)
        cost = sum(p * n for p, n in zip(prices, counts) if n)
        return Bid(counts, top - paid + cost, top - paid)

    def _climb(
        self,
        mode: Mode,
        prices: Sequence[float],
        order: Order,
        limit: Sequence[int],
        trail: _Trail,
    ) -> list[float]:
        """The best value less cost at each number of units, longest open classes first."""
        unit, size = self.job.unit, mode.most + 1
        values = [0.0]
        for depth in range(len(mode.classes) - 1, -1, -1):
            lots = _lots(mode, depth, prices, order, limit, unit)
            if not trail.steps and len(values) == 1:
                values = _first(values[0], lots, mode.most)
                trail.first = lots
            else:
                for _, equal in groupby(lots, key=_price):
                    group = list(equal)
                    trail.steps.append((group, values))
                    values = extended(values, group, size)
            if depth:
                values = list(map(add, values, mode.gains[depth]))
        return values


def depths_of(spans: Sequence[Period], classes: int) -> list[int]:
    """The number of periods for which each class stays open."""
    return [sum(span.is_open[c] for span in spans) for c in range(classes)]


def _lots(
    mode: Mode,
    depth: int,
    prices: Sequence[float],
    order: Order,
    limit: Sequence[int],
    unit: int,
) -> list[Lot]:
    """The offers of classes of this depth, cheapest first, as far as they can be used."""
    inside, missing = mode.classes[depth], mode.most
    lots: list[Lot] = []
    for c in order[depth] if inside else ():
        if missing <= 0:
            break
        units = limit[c] // unit
        if units > 0 and c in inside:
            lots.append(Lot(c, prices[c] * unit, units))
            missing -= units
    return lots


def _first(value: float, lots: Sequence[Lot], most: int) -> list[float]:
    """`value` less the cost of each number of units from lots in their order, cheapest first."""
    costs: list[float] = []
    for lot in lots:
        costs += [-lot.price] * min(lot.units, most - len(costs))
        if len(costs) >= most:
            break
    return list(accumulate(costs, initial=value))


def _price(lot: Lot) -> float:
    return lot.price


def extended(values: list[float], lots: Sequence[Lot], size: int) -> list[float]:
    """The best of each number of units when more may come from lots of the same price."""
    price, units = lots[0].price, sum(lot.units for lot in lots)
    length = min(size, len(values) + units)
    paid = [v + price * n for n, v in enumerate(values)]
    paid += [NEVER] * (length - len(values))
    most = list(accumulate(paid, max)) if units >= length else _window_max(paid, units + 1)
    return [v - price * n for n, v in enumerate(most)]


def _window_max(values: list[float], width: int) -> list[float]:
    """The greatest of the last `width` values at each position, in log(width) passes."""
    done = 1
    while done < width:
        shift = min(done, width - done)
        values = values[:shift] + list(map(max, values[shift:], values))
        done += shift
    return values
