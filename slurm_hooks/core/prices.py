"""Near-optimal counts with a proof of how near, by putting a price on the nodes of each class.

Lagrangian relaxation: if nodes had prices instead of running out, each job could choose alone, and
what all choose together is worth at least as much as any allowed answer, less what the prices
forgive. So every set of prices proves an upper bound (Geoffrion 1974), and the prices at which
demand meets supply prove a good one. One price for all is found by false position, then each class gets
its own by subgradient steps in the length of Polyak (1969). Answers are repaired to fit: what is
kept is kept, growth takes what is left, and the greedy search hands out the rest.

With 31 things that can run out and hundreds of jobs hardly any job is torn between two choices, so
the bound is tight and the repair small where an integer programme has the hardest work. It must not
know the milp, and it reads no clock: it is told when to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurm_hooks.core.bids import Bid, Bidder, Order, depths_of
from slurm_hooks.core.greedy import climb_from
from slurm_hooks.core.problem import Problem
from slurm_hooks.core.value import Counts, may_gain, nodes_to_give, periods, value

SEARCHES = 14
CLOSE = 0.02
STEPS = 60
REPAIR_EVERY = 5
STEPS_WITHOUT_GAIN = 15
FIRST_SCALE = 0.3
RAISE = 1.01


@dataclass(frozen=True)
class Priced:
    """The best counts (job, class) found, their value, and the bound that no answer exceeds."""

    counts: Counts
    value: float
    bound: float
    rounds: int = 0

    @property
    def gap(self) -> float:
        """What could still be missing, relative to the value."""
        return (self.bound - self.value) / max(abs(self.value), 1e-9)


@dataclass(frozen=True)
class _Asked:
    """All jobs' answers to prices: the bound they prove and the nodes they take (class)."""

    bids: tuple[Bid, ...]
    bound: float
    demand: tuple[int, ...]


class _Market:
    """The problem as bidders and supply, and the best that has been found so far."""

    def __init__(self, problem: Problem, start: Counts) -> None:
        self.problem = problem
        self.spans = periods(problem)
        self.caps = [c.capacity for c in problem.classes]
        self.depths = depths_of(self.spans, len(self.caps))
        self.bidders = [Bidder(job, self.spans, self.caps) for job in problem.jobs]
        self.spare = max(0, sum(self.caps) - nodes_to_give(problem))
        self.counts, self.value = start, value(problem, start)
        self.bound = float("inf")
        self.rounds = 0

    def ask(self, prices: Sequence[float]) -> _Asked:
        """Every job's best row at `prices` (class); of equal prices the least wanted class first."""
        self.rounds += 1
        demand = [0] * len(self.caps)
        bids = []
        order = self.order(prices, demand)
        for bidder in self.bidders:
            bid = bidder.answer(prices, order)
            bids.append(bid)
            if any(bid.row):
                demand = [d + n for d, n in zip(demand, bid.row)]
                order = self.order(prices, demand)
        forgiven = sum(p * cap for p, cap in zip(prices, self.caps)) - self._headroom(prices)
        bound = forgiven + sum(bid.surplus for bid in bids)
        self.bound = min(self.bound, bound)
        return _Asked(tuple(bids), bound, tuple(demand))

    def order(self, prices: Sequence[float], demand: Sequence[int]) -> Order:
        """Classes by depth, the cheapest first, then the one of which most is left."""
        found: list[list[int]] = [[] for _ in range(len(self.spans) + 1)]
        keys = [(p, d - cap) for p, d, cap in zip(prices, demand, self.caps)]
        for c in sorted(range(len(self.caps)), key=keys.__getitem__):
            found[self.depths[c]].append(c)
        return found

    def _headroom(self, prices: Sequence[float]) -> float:
        """Nodes that nobody may have cost nothing at the lowest price, which all have in common."""
        return self.spare * min((p for p, cap in zip(prices, self.caps) if cap), default=0.0)

    def repair(self, asked: _Asked, prices: Sequence[float]) -> None:
        """Make the answers fit the supply; keep the result if it is the best so far."""
        rows = [
            tuple(map(min, bid.row, bidder.job.held))
            for bid, bidder in zip(asked.bids, self.bidders)
        ]
        free = [cap - sum(row[c] for row in rows) for c, cap in enumerate(self.caps)]
        budget = nodes_to_give(self.problem) - sum(map(sum, rows))
        for at, (bid, bidder) in enumerate(zip(asked.bids, self.bidders)):
            if bid.row == rows[at]:
                continue
            taken = [cap - f for cap, f in zip(self.caps, free)]
            row = bidder.answer(prices, self.order(prices, taken), free).row
            added = [n - o for n, o in zip(row, rows[at])]
            if sum(added) > budget:
                continue
            rows[at] = row
            budget -= sum(added)
            free = [f - a for f, a in zip(free, added)]
        counts = climb_from(self.problem, tuple(rows))
        worth = value(self.problem, counts)
        if worth > self.value:
            self.counts, self.value = counts, worth

    def result(self) -> Priced:
        """What has been found so far."""
        return Priced(self.counts, self.value, max(self.bound, self.value), self.rounds)


def solve_prices(
    problem: Problem, start: Counts, gap: float, is_late: Callable[[], bool] = lambda: False
) -> Priced:
    """Counts worth at least as much as `start`, and a proven bound; stops at the relative `gap`.

    `start` (job, class) must be allowed. `is_late` ends the search early; without it the same
    problem always gets the same answer.
    """
    market = _Market(problem, start)
    tariff = Tariff.of(market)

    def is_done() -> bool:
        return market.result().gap <= gap or is_late()

    level, high = _common_price(market, tariff, is_late)
    levels = [level] * len(tariff.groups)
    _try_around(market, tariff, levels, high / level, is_done)
    if len(tariff.groups) > 1 and not is_done():
        levels = _own_prices(market, tariff, level, is_done)
        _try_around(market, tariff, levels, RAISE, is_done)
    return market.result()


@dataclass(frozen=True)
class Tariff:
    """Classes in groups that mostly the same jobs want; `weights` are open seconds (class).

    A price is a level per node-second, one for each group, times the seconds that the class stays
    open. Within a group demand spreads by itself, so its classes need no prices of their own.
    """

    weights: tuple[float, ...]
    groups: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(market: _Market) -> Tariff:
        """Group the classes by how long they stay open and by the jobs that may use them."""
        found: list[tuple[int, int, list[int]]] = []
        for c, depth in enumerate(market.depths):
            users = sum(1 << at for at, job in enumerate(market.problem.jobs) if may_gain(job, c))
            for group_depth, group_users, members in found:
                if depth == group_depth and _are_alike(users, group_users):
                    members.append(c)
                    break
            else:
                found.append((depth, users, [c]))
        weights = (sum(s.seconds for s in market.spans[:depth]) for depth in market.depths)
        return Tariff(tuple(weights), tuple(tuple(members) for _, _, members in found))

    def prices(self, levels: Sequence[float]) -> list[float]:
        """The price of a node of each class."""
        prices = [0.0] * len(self.weights)
        for level, group in zip(levels, self.groups):
            for c in group:
                prices[c] = level * self.weights[c]
        return prices

    def seconds(self, nodes: Sequence[float]) -> list[float]:
        """Node-seconds in each group of so many `nodes` (class)."""
        return [sum(nodes[c] * self.weights[c] for c in group) for group in self.groups]


def _are_alike(users: int, others: int) -> bool:
    """True if two sets of jobs, as bits, have more in common than not."""
    return 2 * bin(users & others).count("1") >= bin(users | others).count("1")


def _common_price(
    market: _Market, tariff: Tariff, is_late: Callable[[], bool]
) -> tuple[float, float]:
    """The level for all groups that proves the best bound, and one at which all demand is met.

    False position, kept off the ends of the bracket so that it shrinks by a fifth at least.
    """
    supply = sum(market.caps) - market.spare
    level = max(market.value / max(sum(tariff.seconds(market.caps)), 1e-9) / 2, 1e-9)
    low, high = (0.0, float(supply)), (float("inf"), 0.0)  # (level, nodes wanted too many)
    best = (float("inf"), level)
    for _ in range(SEARCHES):
        asked = market.ask(tariff.prices([level] * len(tariff.groups)))
        best = min(best, (asked.bound, level))
        over = float(sum(asked.demand) - supply)
        if over > 0:
            low = (level, over)
        else:
            high = (level, over)
        if high[0] - low[0] < CLOSE * high[0] or is_late():
            break
        level = 2 * level if high[0] == float("inf") else _between(low, high)
    return best[1], high[0] if best[1] < high[0] < float("inf") else best[1] * RAISE


def _between(low: tuple[float, float], high: tuple[float, float]) -> float:
    share = low[1] / max(low[1] - high[1], 1e-9)
    return low[0] + (high[0] - low[0]) * min(max(share, 0.2), 0.8)


def _try_around(
    market: _Market,
    tariff: Tariff,
    levels: Sequence[float],
    factor: float,
    is_done: Callable[[], bool],
) -> None:
    """Repair the answers at the levels and at levels raised by the factor."""
    for times in (1.0, factor):
        if is_done():
            return
        prices = tariff.prices([level * times for level in levels])
        market.repair(market.ask(prices), prices)


def _own_prices(
    market: _Market, tariff: Tariff, level: float, is_done: Callable[[], bool]
) -> list[float]:
    """Move the level of each group to where it is just wanted; where headroom binds, all together.

    Steps are scaled by the node-seconds of each group, so that small groups move as fast as large.
    """
    own = [0.0 if market.spare else level] * len(tariff.groups)
    common, scale, since = level if market.spare else 0.0, FIRST_SCALE, 0
    supply = tariff.seconds(market.caps)
    best, best_levels = market.bound, [level] * len(own)
    for step in range(STEPS):
        levels = [o + common for o in own]
        prices = tariff.prices(levels)
        asked = market.ask(prices)
        since += 1
        if asked.bound < best:
            best, best_levels, since = asked.bound, levels, 0
        elif since % 3 == 0:
            scale *= 0.5
        if step % REPAIR_EVERY == REPAIR_EVERY - 1:
            market.repair(asked, prices)
        if since > STEPS_WITHOUT_GAIN or is_done():
            break
        over = [d - s for d, s in zip(tariff.seconds(asked.demand), supply)]
        over = [0.0 if o < 0 and not p else o for o, p in zip(over, own)]
        together = sum(tariff.seconds(asked.demand)) - sum(supply)
        together += market.spare * sum(supply) / max(sum(market.caps), 1) if market.spare else 0.0
        together = together if market.spare else 0.0
        length = sum(o * o / s for o, s in zip(over, supply) if s) + together**2 / sum(supply)
        if not length:
            break
        stride = scale * (asked.bound - market.value) / length
        own = [max(0.0, p + stride * o / s) if s else 0.0 for p, o, s in zip(own, over, supply)]
        common = max(0.0, common + stride * together / sum(supply))
    return best_levels
