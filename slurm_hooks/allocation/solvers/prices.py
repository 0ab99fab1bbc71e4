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
Levels = tuple[float, ...]
"""A price for each group of classes."""


def solve_prices(market: Market, gap: float) -> None:
    """Improve the market's answer and its bound until they are within the relative `gap`.

    It ends early when the market is late. Without that the same problem gets the same answer.
    """
    try:
        _search(market, Groups(market), lambda: market.gap <= gap or market.is_late())
    except OutOfTime:
        return


def _search(market: Market, groups: Groups, is_done: Callable[[], bool]) -> None:
    _, levels, high = min(_common_level(market, groups, shape) for shape in groups.shapes)
    _try_around(market, groups, (high, levels), is_done)
    if len(groups.weights) > 1 and not is_done():
        levels = _own_levels(market, groups, levels, is_done)
        _try_around(market, groups, (_times(levels, RAISE), levels), is_done)
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


class Groups:
    """Classes in groups that mostly the same jobs want, and the `supply` of each group.

    `weights` say how often a node of a class in the group pays its price: once for each second that
    it stays open. Within a group demand spreads without help, so its classes need no prices of
    their own. Where a ceiling makes all nodes scarce, all classes are a group too, and a node pays
    once. `shapes` are the prices from which the search starts: per second, or per node.
    """

    def __init__(self, market: Market) -> None:
        self._classes = range(len(market.caps))
        users_of: list[int] = []
        self.weights: list[dict[int, float]] = []
        for c, depth in enumerate(market.depths):
            users = sum(1 << at for at, job in enumerate(market.problem.jobs) if may_gain(job, c))
            seconds = sum(span.seconds for span in market.spans[:depth])
            for group_users, weights in zip(users_of, self.weights):
                if seconds in weights.values() and _are_alike(users, group_users):
                    weights[c] = seconds
                    break
            else:
                users_of.append(users)
                self.weights.append({c: seconds})
        self.shapes: list[Levels] = [(1.0,) * len(users_of)]
        self.supply = self.sold(market.caps)
        if market.spare:
            self.weights.append(dict.fromkeys(self._classes, 1.0))
            self.supply.append(float(sum(market.caps) - market.spare))
            self.shapes = [(*self.shapes[0], 0.0), (*[0.0] * len(users_of), 1.0)]

    def prices(self, levels: Levels) -> list[float]:
        """The price of a node of each class."""
        prices = [0.0 for _ in self._classes]
        for level, weights in zip(levels, self.weights):
            for c, weight in weights.items():
                prices[c] += level * weight
        return prices

    def sold(self, nodes: Sequence[int]) -> list[float]:
        """So many `nodes` (class) in each group, with their weights."""
        return [sum(nodes[c] * weight for c, weight in each.items()) for each in self.weights]


def _are_alike(users: int, others: int) -> bool:
    """Tell whether two sets of jobs, as bits, have more in common than not."""
    return 2 * bin(users & others).count("1") >= bin(users | others).count("1")


def _times(levels: Levels, factor: float) -> Levels:
    return tuple(level * factor for level in levels)


def _common_level(market: Market, groups: Groups, shape: Levels) -> tuple[float, Levels, Levels]:
    """The best bound that prices of this `shape` prove, with them, and prices too high for demand.

    It uses false position, kept off the ends of the bracket so that it shrinks by at least a fifth.
    """
    supply = sum(market.caps) - market.spare
    total = sum(p * cap for p, cap in zip(groups.prices(shape), market.caps))
    level = max(market.value / max(total, 1e-9) / 2, 1e-9)
    low, high = (0.0, float(supply)), (math.inf, 0.0)  # (level, nodes wanted beyond the supply)
    best = (math.inf, level)
    for _ in range(SEARCHES):
        asked = market.ask(groups.prices(_times(shape, level)))
        best = min(best, (asked.bound, level))
        over = float(sum(asked.demand) - supply)
        if over > 0:
            low = (level, over)
        else:
            high = (level, over)
        if high[0] - low[0] < CLOSE * high[0] or market.is_late():
            break
        share = min(max(low[1] / max(low[1] - high[1], 1e-9), 0.2), 0.8)
        level = 2 * level if high[0] == math.inf else low[0] + (high[0] - low[0]) * share
    bound, level = best
    above = high[0] if level < high[0] < math.inf else level * RAISE
    return bound, _times(shape, level), _times(shape, above)


def _try_around(
    market: Market, groups: Groups, tariffs: Sequence[Levels], is_done: Callable[[], bool]
) -> None:
    """Repair the answers to each of the tariffs."""
    for levels in tariffs:
        if not is_done():
            market.repair(market.ask(groups.prices(levels)), is_done)


def _own_levels(
    market: Market, groups: Groups, levels: Levels, is_done: Callable[[], bool]
) -> Levels:
    """Move the level of each group to just wanted."""
    best, scale, since = (market.bound, levels), FIRST_SCALE, 0
    for step in range(1, STEPS + 1):
        asked = market.ask(groups.prices(levels))
        since += 1
        if asked.bound < best[0]:
            best, since = (asked.bound, levels), 0
        elif since % 3 == 0:
            scale /= 2
        if step % REPAIR_EVERY == 0:
            market.repair(asked, is_done)
        moved = _step(market, groups, levels, asked, scale)
        if since > STEPS_WITHOUT_GAIN or is_done() or moved == levels:
            break
        levels = moved
    return best[1]


def _step(market: Market, groups: Groups, levels: Levels, asked: Asked, scale: float) -> Levels:
    """Step up where demand exceeds supply, down where it falls short.

    Steps are scaled by the supply of each group, so that small groups move as fast as large groups.
    """
    supply = [max(s, 1e-9) for s in groups.supply]
    over = [d - s for d, s in zip(groups.sold(asked.demand), supply)]
    over = [0.0 if o < 0 and not level else o for o, level in zip(over, levels)]
    length = sum(o * o / s for o, s in zip(over, supply))
    if not length:
        return levels
    stride = scale * (asked.bound - market.value) / length
    return tuple(max(0.0, p + stride * o / s) for p, o, s in zip(levels, over, supply))
