"""Lets all jobs of a problem bid for its nodes at given prices, and makes the bids fit.

It keeps the best answer and the best bound so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import TypeVar

from slurm_hooks.allocation.problem import OutOfTime, Problem, never
from slurm_hooks.allocation.solvers.bids import Bid, Bidder, depths_of
from slurm_hooks.allocation.solvers.finish import Supply
from slurm_hooks.allocation.solvers.greedy import climb_from
from slurm_hooks.allocation.value import Counts, Row, nodes_to_give, periods, row_fault, value

FITS = 6
T = TypeVar("T")


@dataclass(frozen=True)
class Asked:
    """All jobs' answers to `prices`: the bound that they prove and the nodes they take (class)."""

    prices: tuple[float, ...]
    bids: tuple[Bid, ...]
    bound: float
    demand: tuple[int, ...]


class _Shelf:
    """Nodes on offer: `left` of each class, and classes by depth in the order to take them.

    The cheapest class comes first. Of equal prices the fullest class comes first, so that demand
    spreads.
    """

    def __init__(
        self, prices: Sequence[float], nodes: Sequence[int], depths: Sequence[int]
    ) -> None:
        self.left = list(nodes)
        self.order: list[list[int]] = [[] for _ in range(max(depths, default=0) + 1)]
        self._keys = [(price, -n) for price, n in zip(prices, nodes)]
        for c, depth in enumerate(depths):
            self.order[depth].append(c)
        self._depths = depths
        for classes in self.order:
            classes.sort(key=self._keys.__getitem__)

    def take(self, row: Row) -> None:
        """Take the nodes of a row (class) off the shelf."""
        touched = set()
        for c in compress(range(len(row)), row):
            self.left[c] -= row[c]
            self._keys[c] = (self._keys[c][0], -self.left[c])
            touched.add(self._depths[c])
        for depth in touched:
            self.order[depth].sort(key=self._keys.__getitem__)


class Market:
    """Bidders and supply. `start` (job, class) must be allowed. It is the first best answer.

    A step that `is_late` ends early raises OutOfTime. The best answer and the bound stay true.
    """

    def __init__(
        self, problem: Problem, start: Counts, is_late: Callable[[], bool] = never
    ) -> None:
        self.problem = problem
        self.is_late = is_late
        self.spans = periods(problem)
        self.caps = [c.capacity for c in problem.classes]
        self.depths = depths_of(self.spans, len(self.caps))
        self.spare = max(0, sum(self.caps) - nodes_to_give(problem))
        self.counts, self.value, self.bound = start, value(problem, start), math.inf
        self.prices: tuple[float, ...] = ()  # they prove the bound
        self.bids: tuple[Bid, ...] = ()  # the answers to them
        self._urgency = [0.0] * len(problem.jobs)

    @cached_property
    def bidders(self) -> list[Bidder]:
        """The jobs (job), with a table of their gains."""
        return [Bidder(job, self.spans, self.caps) for job in self.in_time(self.problem.jobs)]

    @property
    def gap(self) -> float:
        """The value that could still be missing, relative to the value."""
        return (max(self.bound, self.value) - self.value) / max(abs(self.value), 1e-9)

    def in_time(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items until the time is up."""
        for item in items:
            if self.is_late():
                raise OutOfTime
            yield item

    def ask(self, prices: Sequence[float]) -> Asked:
        """Every job's best row at `prices` (class), spread over classes of the same price."""
        shelf = _Shelf(prices, self.caps, self.depths)
        bids = []
        for bidder in self.in_time(self.bidders):
            bid = bidder.answer(prices, shelf.order)
            bids.append(bid)
            shelf.take(bid.row)
        demand = [cap - left for cap, left in zip(self.caps, shelf.left)]
        bound = sum(bid.surplus for bid in bids) + self.supply(prices).worth(self.caps)
        if bound < self.bound:
            self.bound, self.prices, self.bids = bound, tuple(prices), tuple(bids)
        return Asked(tuple(prices), tuple(bids), bound, tuple(demand))

    def repair(self, asked: Asked, is_done: Callable[[], bool]) -> None:
        """Make the answers fit the supply, and keep the result if it is the best so far.

        A job that lost most by its late turn gets an earlier turn next time (squeaky wheel
        optimisation, Joslin and Clements 1999). The fit that loses least is completed.
        """
        fits: list[tuple[float, Counts]] = []
        while len(fits) < FITS and not is_done():
            fits.append(self._fit(asked))
            if fits[-1][0] < 1e-4 * abs(self.value):
                break
        if fits:
            counts = climb_from(self.problem, min(fits)[1], self.is_late)
            worth = value(self.problem, counts)
            if worth > self.value:
                self.counts, self.value = counts, worth

    def supply(self, prices: Sequence[float]) -> Supply:
        """The supply at these prices (class)."""
        return Supply(self.caps, prices, self.spare)

    def _fit(self, asked: Asked) -> tuple[float, Counts]:
        """Rows that fit, and their loss against the bound of the prices.

        Each job keeps the held nodes that it wants. Then the jobs take from the rest in turn.
        """
        rows = [
            tuple(map(min, bid.row, job.held)) for bid, job in zip(asked.bids, self.problem.jobs)
        ]
        if sum(map(sum, rows)) > sum(self.caps) - self.spare:  # the ceiling allows less
            return math.inf, ((0,) * len(self.caps),) * len(rows)
        free = [cap - sum(column) for cap, column in zip(self.caps, zip(*rows))]
        shelf = _Shelf(asked.prices, free, self.depths)
        budget, lost = sum(free) - self.spare, 0.0
        turns = sorted(range(len(rows)), key=lambda at: -self._urgency[at])
        for at in self.in_time(turns):
            bid = asked.bids[at]
            if bid.row == rows[at]:
                continue
            limits = [min(left, budget) for left in shelf.left]
            got = self.bidders[at].answer(asked.prices, shelf.order, limits)
            self._urgency[at] += bid.surplus - got.surplus
            lost += bid.surplus - got.surplus
            row = got.row if sum(got.row) - sum(rows[at]) <= budget else rows[at]
            if row_fault(self.problem.jobs[at], row):
                row = (0,) * len(row)  # it keeps too few nodes to run
            added = tuple(n - o for n, o in zip(row, rows[at]))
            rows[at] = row
            budget -= sum(added)
            shelf.take(added)
        return lost + self.supply(asked.prices).worth(shelf.left), tuple(rows)
