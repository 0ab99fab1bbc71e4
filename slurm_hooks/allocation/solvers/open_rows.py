"""Lists the rows of each job that prices leave open: rows that lose little against its best row.

`bids` finds the best row by a chain over the classes. The way back through that chain, in all its
turns instead of the best, finds every row that is nearly as good, and no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import add

from slurm_hooks.allocation.solvers.bids import Bidder, Lot, Mode, extended
from slurm_hooks.allocation.solvers.finish import Choice, TooLarge
from slurm_hooks.allocation.solvers.market import Market
from slurm_hooks.allocation.value import Row


def open_rows(market: Market, allowed: float, most: int) -> list[list[Choice]]:
    """The rows of each job that lose no more than `allowed` at the prices that prove the bound.

    Raises `TooLarge` if there are more than `most`.
    """
    menus, room = [], most
    for bidder, bid in market.in_time(zip(market.bidders, market.bids)):
        rows = list(islice(near(bidder, market.prices, bid.surplus - allowed), room + 1))
        room -= len(rows)
        if room < 0:
            raise TooLarge(f"more than {most} rows")
        menus.append(sorted(Choice(max(0.0, bid.surplus - s), row) for s, row in rows))
    return menus


def near(bidder: Bidder, prices: Sequence[float], least: float) -> Iterator[tuple[float, Row]]:
    """Every allowed row of at least the surplus `least` at `prices` (class), with its surplus."""
    job, zero, kept = bidder.job, bidder.zero, bidder.kept(prices)
    if (bidder.held is None or not job.size) and zero.surplus >= least:
        yield zero.surplus, zero.row
    if bidder.held is None:
        if kept and kept.surplus >= least:
            yield kept.surplus, kept.row
        return
    if job.size:
        yield from _Chain(bidder.held, prices, job.held, job.unit).near(least)
    if bidder.more is not None:
        yield from _Chain(bidder.more, prices, bidder.limit, job.unit).near(least)


class _Chain:
    """The growth of the best surplus at each number of units, class by class."""

    def __init__(
        self, mode: Mode, prices: Sequence[float], limit: Sequence[int], unit: int
    ) -> None:
        self._base, self._unit = mode.base, unit
        self._steps: list[tuple[Lot, list[float]]] = []  # a class, and the surplus without it
        values = [-sum(p * n for p, n in zip(prices, mode.base) if n)]
        for depth in range(len(mode.classes) - 1, -1, -1):
            for c in sorted(mode.classes[depth]):
                lot = Lot(c, prices[c] * unit, limit[c] // unit)
                if lot.units > 0:
                    self._steps.append((lot, values))
                    values = extended(values, [lot], mode.most + 1)
            if depth:
                values = list(map(add, values, mode.gains[depth]))
        self._surpluses = list(map(add, values, mode.last))

    def near(self, least: float) -> Iterator[tuple[float, Row]]:
        """Every row of at least the surplus `least`, with its surplus."""
        for units, surplus in enumerate(self._surpluses):
            if surplus >= least:
                for lost, row in self._ways(len(self._steps), units, surplus - least):
                    yield surplus - lost, row

    def _ways(self, steps: int, units: int, spare: float) -> Iterator[tuple[float, Row]]:
        """The rows of so many units from the first `steps` classes that lose up to `spare`."""
        if not steps:
            yield 0.0, self._base
            return
        lot, before = self._steps[steps - 1]
        fewest = max(0, units - len(before) + 1)
        taken = range(fewest, min(lot.units, units) + 1)
        values = [before[units - n] - n * lot.price for n in taken]
        best, c = max(values), lot.of_class
        for value, n in zip(values, taken):
            if best - value <= spare:
                for lost, row in self._ways(steps - 1, units - n, spare - best + value):
                    yield lost + best - value, (*row[:c], row[c] + n * self._unit, *row[c + 1 :])
