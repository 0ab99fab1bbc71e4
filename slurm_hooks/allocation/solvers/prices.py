"""Finds near-optimal counts by a price on the nodes of each class, and proves how near they are.

Lagrangian relaxation: if nodes had prices instead of a limited supply, each job could choose alone.
The sum of their choices, plus the price of the leftover nodes, is worth at least as much as any
allowed answer. So every set of prices proves an upper bound (Geoffrion 1974), and the prices at
which demand meets supply prove a good bound. False position finds a common price. Then groups of
classes get their own prices by subgradient steps of the length of Polyak (1969).

When a few dozen classes run out, hardly any of hundreds of jobs has two equally good choices. So
the bound is tight and the repair small just where an integer programme has the hardest work. A
small problem is the opposite, and gets a full search instead. The caller says when to stop, so this
module reads no clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from slurm_hooks.allocation.problem import OutOfTime
from slurm_hooks.allocation.solvers.finish import TooLarge, best_rows
from slurm_hooks.allocation.solvers.market import Asked, Market
from slurm_hooks.allocation.value import may_gain, value

SEARCHES = 14
CLOSE = 0.02
RAISE = 1.01
STEPS = 60
REPAIR_EVERY = 8
STEPS_WITHOUT_GAIN = 15
FIRST_SCALE = 0.3


MOST_STEPS = 200_000
"""The steps after which the search for the best answer gives up: 0.1 s of Python."""
MOST_ROWS = 5_000
"""The largest number of open rows, of all jobs, that it lists: 0.05 s of Python."""


def solve_prices(market: Market, gap: float) -> None:
    """Improve the market's answer and its bound until they are within the relative `gap`.

    It ends early when the market is late. Without that the same problem gets the same answer.
    """
    try:
        _search(market, gap)
    except OutOfTime:
        return


def _search(market: Market, gap: float) -> None:
    sectors = Sectors.of(market)

    def is_done() -> bool:
        return market.gap <= gap or market.is_late()

    best, high = _common_level(market, sectors, _scaled(sectors))
    if market.spare:
        flat, flat_high = _common_level(market, sectors, _flat(sectors))
        if flat[0] < best[0]:
            best, high = flat, flat_high
    _, tariff = best
    _try_around(market, sectors, (high, tariff), is_done)
    if (len(sectors.groups) > 1 or market.spare) and not is_done():
        tariff = _own_levels(market, sectors, tariff, is_done)
        _try_around(market, sectors, (tariff.times(RAISE), tariff), is_done)
    if not is_done():
        _finish(market)


def _finish(market: Market) -> None:
    """Find the best answer where the problem is small enough."""
    gap = market.bound - market.value - 1e-9 * max(1.0, abs(market.value))
    listed = partial(market.open_rows, most=MOST_ROWS)
    try:
        rows = best_rows(listed, market.supply(market.proof.prices), gap, MOST_STEPS)
    except TooLarge:
        return
    if rows:
        market.counts, market.value = tuple(rows), value(market.problem, tuple(rows))
    market.bound = market.value


@dataclass(frozen=True)
class Tariff:
    """Prices in few numbers: a common price per node, and a price per open second by group."""

    own: tuple[float, ...]
    common: float = 0.0

    def times(self, factor: float) -> Tariff:
        """All prices times `factor`."""
        return Tariff(tuple(level * factor for level in self.own), self.common * factor)


@dataclass(frozen=True)
class Sectors:
    """Classes in groups that mostly the same jobs want. A class is open for `seconds`.

    Within a group demand spreads without help, so its classes need no prices of their own.
    """

    seconds: tuple[float, ...]
    groups: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(market: Market) -> Sectors:
        """Group the classes by how long they stay open and by the jobs that may use them."""
        groups: list[tuple[int, int, list[int]]] = []
        for c, depth in enumerate(market.depths):
            users = sum(1 << at for at, job in enumerate(market.problem.jobs) if may_gain(job, c))
            for group_depth, group_users, members in groups:
                if depth == group_depth and _are_alike(users, group_users):
                    members.append(c)
                    break
            else:
                groups.append((depth, users, [c]))
        seconds = (sum(s.seconds for s in market.spans[:depth]) for depth in market.depths)
        return Sectors(tuple(seconds), tuple(tuple(members) for _, _, members in groups))

    def prices(self, tariff: Tariff) -> list[float]:
        """The price of a node of each class."""
        prices = [tariff.common] * len(self.seconds)
        for level, group in zip(tariff.own, self.groups):
            for c in group:
                prices[c] += level * self.seconds[c]
        return prices

    def node_seconds(self, nodes: Sequence[float]) -> list[float]:
        """Node-seconds in each group of so many `nodes` (class)."""
        return [sum(nodes[c] * self.seconds[c] for c in group) for group in self.groups]


def _are_alike(users: int, others: int) -> bool:
    """Tell whether two sets of jobs, as bits, have more in common than not."""
    return 2 * bin(users & others).count("1") >= bin(users | others).count("1")


def _scaled(sectors: Sectors) -> Tariff:
    """The shape of prices where a node costs as much as its open seconds."""
    return Tariff((1.0,) * len(sectors.groups))


def _flat(sectors: Sectors) -> Tariff:
    """The shape of prices where every node costs the same: headroom makes all of them scarce."""
    return Tariff((0.0,) * len(sectors.groups), max(sectors.seconds, default=1.0) or 1.0)


def _common_level(
    market: Market, sectors: Sectors, shape: Tariff
) -> tuple[tuple[float, Tariff], Tariff]:
    """The best bound that prices of this `shape` prove, with them, and prices too high for demand.

    It uses false position, kept off the ends of the bracket so that it shrinks by at least a fifth.
    """
    supply = sum(market.caps) - market.spare
    total = sum(p * cap for p, cap in zip(sectors.prices(shape), market.caps))
    level = max(market.value / max(total, 1e-9) / 2, 1e-9)
    low, high = (0.0, float(supply)), (math.inf, 0.0)  # (level, nodes wanted beyond the supply)
    best = (math.inf, level)
    for _ in range(SEARCHES):
        asked = market.ask(sectors.prices(shape.times(level)))
        best = min(best, (asked.bound, level))
        over = float(sum(asked.demand) - supply)
        if over > 0:
            low = (level, over)
        else:
            high = (level, over)
        if high[0] - low[0] < CLOSE * high[0] or market.is_late():
            break
        level = 2 * level if high[0] == math.inf else _between(low, high)
    bound, level = best
    above = high[0] if level < high[0] < math.inf else level * RAISE
    return (bound, shape.times(level)), shape.times(above)


def _between(low: tuple[float, float], high: tuple[float, float]) -> float:
    share = low[1] / max(low[1] - high[1], 1e-9)
    return low[0] + (high[0] - low[0]) * min(max(share, 0.2), 0.8)


def _try_around(
    market: Market, sectors: Sectors, tariffs: Sequence[Tariff], is_done: Callable[[], bool]
) -> None:
    """Repair the answers to each of the tariffs."""
    for tariff in tariffs:
        if is_done():
            return
        market.repair(market.ask(sectors.prices(tariff)), is_done)


def _own_levels(
    market: Market, sectors: Sectors, tariff: Tariff, is_done: Callable[[], bool]
) -> Tariff:
    """Move the level of each group to just wanted, and the common level where headroom binds."""
    best, scale, since = (market.bound, tariff), FIRST_SCALE, 0
    for step in range(1, STEPS + 1):
        asked = market.ask(sectors.prices(tariff))
        since += 1
        if asked.bound < best[0]:
            best, since = (asked.bound, tariff), 0
        elif since % 3 == 0:
            scale /= 2
        if step % REPAIR_EVERY == 0:
            market.repair(asked, is_done)
        moved = _step(market, sectors, tariff, asked, scale)
        if since > STEPS_WITHOUT_GAIN or is_done() or moved == tariff:
            break
        tariff = moved
    return best[1]


def _step(market: Market, sectors: Sectors, tariff: Tariff, asked: Asked, scale: float) -> Tariff:
    """Step up where demand exceeds supply, down where it falls short.

    Steps are scaled by the supply of each group, so that small groups move as fast as large groups.
    """
    supply = [max(s, 1e-9) for s in sectors.node_seconds(market.caps)]
    over = [d - s for d, s in zip(sectors.node_seconds(asked.demand), supply)]
    over = [0.0 if o < 0 and not level else o for o, level in zip(over, tariff.own)]
    nodes = max(1, sum(market.caps))
    total = sum(asked.demand) - nodes + market.spare if market.spare else 0
    length = sum(o * o / s for o, s in zip(over, supply)) + total * total / nodes
    if not length:
        return tariff
    stride = scale * (asked.bound - market.value) / length
    own = (max(0.0, p + stride * o / s) for p, o, s in zip(tariff.own, over, supply))
    return replace(tariff, own=tuple(own), common=max(0.0, tariff.common + stride * total / nodes))
