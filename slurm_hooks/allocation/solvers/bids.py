"""Finds the best row of counts for a job at given prices of nodes, and all rows that are near it.

The search over prices calls this thousands of times, so sizes are counted in units and kept in
plain lists, a position for each size.

A row is filled from the classes that stay open longest to those that close first. Among classes
that close together the cheapest come first. Sizes are then a sum over a chain, which a small
dynamic programme maximises for any shape of the curve. The way back through the chain finds the
best row, and in all its turns every row that is nearly as good.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate, chain, groupby, islice, repeat
from operator import add, attrgetter
from typing import NamedTuple, Optional

from slurm_hooks.allocation.problem import JobAsk
from slurm_hooks.allocation.value import Period, Row, change_cost, may_gain, rate

NEVER = -math.inf
Order = Sequence[Sequence[int]]
"""Classes by depth (the number of periods for which they stay open), the cheapest first."""


class Bid(NamedTuple):
    """A row (class), and its value less its cost."""

    row: Row
    surplus: float


class Lot(NamedTuple):
    """Up to `units` of a class, each at `price`."""

    of_class: int
    price: float
    units: int


Step = tuple[list[Lot], list[float]]
"""Lots of the same price, and the best value less cost at each position without them."""


@dataclass(frozen=True)
class Mode:
    """A way to choose: `base`, and up to `most` units from the `room` (class). Positions are units.

    `gains[d]` is the gain of each position in the period in which only classes open for d periods
    and longer are open. `last` is the gain of the whole size, NEVER where it is not allowed.
    """

    base: Row
    room: Row
    most: int
    gains: list[list[float]]
    last: list[float]


class Bidder:
    """A job that answers prices. `caps` is the capacity of each class in nodes.

    Its `modes` are to keep some of its nodes, and to keep all of them and get more.
    """

    def __init__(self, job: JobAsk, spans: Sequence[Period], caps: Sequence[int]) -> None:
        self.job, self._spans = job, spans
        self.depths = depths_of(spans, len(caps))
        self._rate = cache(partial(rate, job))
        none = (0,) * len(caps)
        self.modes = [self._mode(none, job.held)]
        if job.is_off_unit:  # it is kept or given up
            kept = [job.held] if job.may_have(job.size) else []
            self.modes = [self._mode(base, none) for base in (none, *kept)]
            return
        more = enumerate(zip(caps, job.held))
        room = tuple(cap - held if may_gain(job, c) else 0 for c, (cap, held) in more)
        mode = self._mode(job.held, room)
        if mode.most:
            mode.last[0] = NEVER  # all that it holds is a way to keep nodes
            self.modes.append(mode)

    def answer(
        self, prices: Sequence[float], order: Order, free: Optional[Sequence[int]] = None
    ) -> Bid:
        """The row of greatest surplus at `prices` (class), classes tried in `order`.

        With `free`, it gets at most that many new nodes of a class. Of equals, the row of fewer
        nodes.
        """
        best = Bid((), NEVER)
        for mode in self.modes:
            is_short = free is not None and mode is not self.modes[0]
            limit = [*map(min, mode.room, free or ())] if is_short else mode.room
            best = self._better(mode, prices, order, limit, best)
        return best

    def near(self, prices: Sequence[float], least: float) -> Iterator[Bid]:
        """Every allowed row of at least the surplus `least` at `prices` (class)."""
        order: list[list[int]] = [[] for _ in range(len(self._spans) + 1)]
        for c, depth in enumerate(self.depths):
            order[depth].append(c)
        for mode in self.modes:
            steps: list[Step] = []
            surpluses = self._climb(mode, prices, order, mode.room, steps, math.inf)
            for units, surplus in enumerate(surpluses):
                if surplus >= least:
                    for lost, row in self._ways(mode.base, steps, units, surplus - least):
                        yield Bid(row, surplus - lost)

    def _mode(self, base: Row, room: Row) -> Mode:
        job, start, unit = self.job, sum(base), self.job.unit
        units = sum(n // unit for n in room)
        most = min(units, (max(job.max_nodes, job.size) - start) // unit)

        @cache
        def rates(fewest: int) -> list[float]:
            return [self._rate(n) for n in range(fewest, fewest + most * unit + 1, unit)]

        gains: list[list[float]] = [[]]
        for at, span in enumerate(self._spans, start=1):
            below = sum(n for n, depth in zip(base, self.depths) if depth >= at)
            gains.append([span.seconds * each for each in rates(below)])
        last = [
            -change_cost(job, max(0, n - job.size), max(0, job.size - n))
            if not n or job.may_have(n)
            else NEVER
            for n in range(start, start + most * unit + 1, unit)
        ]
        return Mode(base, room, most, gains, last)

    def _better(
        self, mode: Mode, prices: Sequence[float], order: Order, limit: Sequence[int], best: Bid
    ) -> Bid:
        """The better of `best` and the best row of the mode within `limit` (class)."""
        steps: list[Step] = []
        values = self._climb(mode, prices, order, limit, steps, mode.most)
        top = max(values)
        if top <= best.surplus + 1e-12:
            return best
        return Bid(self._back(mode.base, steps, values.index(top)), top)

    def _climb(
        self,
        mode: Mode,
        prices: Sequence[float],
        order: Order,
        limit: Sequence[int],
        steps: list[Step],
        enough: float,
    ) -> list[float]:
        """The best value less cost at each number of units, longest open classes first.

        Of classes that close together it tries the first that have `enough` units. The way there is
        added to `steps`. With no limit to them, each class has a step.
        """
        unit, size = self.job.unit, mode.most + 1
        values = [-sum(p * n for p, n in zip(prices, mode.base) if n)]
        if not mode.most:
            return [values[0] + sum(each for (each,) in mode.gains[1:]) + mode.last[0]]
        for depth in range(len(order) - 1, -1, -1):
            lots = _lots(order[depth], prices, limit, unit, enough)
            if enough == math.inf:
                groups: Iterable[list[Lot]] = ([lot] for lot in lots)
            elif len(values) == 1:
                groups = filter(None, [list(lots)])
            else:
                groups = (list(equal) for _, equal in groupby(lots, attrgetter("price")))
            for group in groups:
                steps.append((group, values))
                values = _extended(values, group, size)
            if depth:
                values = list(map(add, values, mode.gains[depth]))
        return list(map(add, values, mode.last))

    def _back(self, base: Row, steps: Sequence[Step], at: int) -> Row:
        """The best row of the position `at`."""
        row = list(base)
        for lots, before in reversed(steps):
            taken, _ = max(_taken(lots, before, at), key=lambda way: (way[1], -way[0]))
            at -= taken
            for lot in lots:
                units = min(lot.units, taken)
                row[lot.of_class] += units * self.job.unit
                taken -= units
        return tuple(row)

    def _ways(
        self, base: Row, steps: Sequence[Step], units: int, spare: float
    ) -> Iterator[tuple[float, Row]]:
        """The rows of so many units that lose up to `spare` against the best, with their loss."""
        if not steps:
            yield 0.0, base
            return
        lots, before = steps[-1]
        c, ways = lots[0].of_class, [*_taken(lots, before, units)]
        best = max(value for _, value in ways)
        for n, value in ways:
            if best - value <= spare:
                for lost, row in self._ways(base, steps[:-1], units - n, spare - best + value):
                    more = row[c] + n * self.job.unit
                    yield lost + best - value, (*row[:c], more, *row[c + 1 :])


def depths_of(spans: Sequence[Period], classes: int) -> list[int]:
    """The number of periods for which each class stays open."""
    return [sum(span.is_open[c] for span in spans) for c in range(classes)]


def _lots(
    classes: Iterable[int],
    prices: Sequence[float],
    limit: Sequence[int],
    unit: int,
    enough: float,
) -> Iterator[Lot]:
    """The offers of the classes, until there is enough."""
    for c in classes:
        if enough <= 0:
            return
        if limit[c] >= unit:
            yield Lot(c, prices[c] * unit, limit[c] // unit)
            enough -= limit[c] // unit


def _taken(lots: Sequence[Lot], before: Sequence[float], at: int) -> Iterator[tuple[int, float]]:
    """The units that may come from the lots on the way to the position `at`, with their value."""
    price, units = lots[0].price, sum(lot.units for lot in lots)
    for taken in range(max(0, at - len(before) + 1), min(units, at) + 1):
        yield taken, before[at - taken] - taken * price


def _extended(values: list[float], lots: Sequence[Lot], size: int) -> list[float]:
    """The best of each number of units when more may come from lots of the same price."""
    if len(values) == 1:  # all units come from the lots, whose prices may differ
        costs = chain.from_iterable(repeat(-lot.price, lot.units) for lot in lots)
        return list(islice(accumulate(costs, initial=values[0]), size))
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
