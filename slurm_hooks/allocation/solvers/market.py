"""Lets all jobs of a problem bid for its nodes at given prices, and makes the bids fit.

It keeps the best answer and the best bound so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import NamedTuple, TypeVar

from slurm_hooks.allocation.problem import OutOfTime, Problem, never
from slurm_hooks.allocation.solvers.bids import Bid, Bidder, depths_of
from slurm_hooks.allocation.solvers.finish import Choice, Supply, TooLarge
from slurm_hooks.allocation.solvers.greedy import climb_from
from slurm_hooks.allocation.value import Counts, nodes_to_give, periods, row_fault, value

FITS = 6
T = TypeVar("T")


class Asked(NamedTuple):
    """All jobs' answers to `prices`: the bound that they prove and the nodes they take (class)."""

    prices: tuple[float, ...]
    bids: tuple[Bid, ...]
    bound: float
    demand: tuple[int, ...]


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
        self.proof = Asked((), (), math.inf, ())  # it proves the bound
        self._urgency = [0.0] * len(problem.jobs)

    @cached_property
    def bidders(self) -> list[Bidder]:
        """The jobs (job), with a table of their gains."""
        return [Bidder(job, self.spans, self.caps) for job in self._in_time(self.problem.jobs)]

    @property
    def gap(self) -> float:
        """The value that could still be missing, relative to the value."""
        return (max(self.bound, self.value) - self.value) / max(abs(self.value), 1e-9)

    def ask(self, prices: Sequence[float]) -> Asked:
        """Every job's best row at `prices` (class)."""
        order = self._order(prices, self.caps)
        bids = [bidder.answer(prices, order) for bidder in self._in_time(self.bidders)]
        demand = tuple(map(sum, zip(*(bid.row for bid in bids))))
        bound = sum(bid.surplus for bid in bids) + self.supply(prices).worth(self.caps)
        asked = Asked(tuple(prices), tuple(bids), bound, demand)
        if bound < self.bound:
            self.bound, self.proof = bound, asked
        return asked

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

    def open_rows(self, allowed: float, most: int) -> list[list[Choice]]:
        """The rows of each job that lose no more than `allowed` at the prices that prove the bound.

        Raises `TooLarge` if there are more than `most`.
        """
        prices, bids, *_ = self.proof
        menus, room = [], most
        for bidder, bid in self._in_time(zip(self.bidders, bids)):
            rows = list(islice(bidder.near(prices, bid.surplus - allowed), room + 1))
            room -= len(rows)
            if room < 0:
                raise TooLarge(f"more than {most} rows")
            menus.append(sorted(Choice(max(0.0, bid.surplus - s), row) for row, s in rows))
        return menus

    def _in_time(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items until the time is up."""
        for item in items:
            if self.is_late():
                raise OutOfTime
            yield item

    def _order(self, prices: Sequence[float], nodes: Sequence[int]) -> list[list[int]]:
        """The classes by depth: the cheapest first, then the class with most `nodes`.

        So demand spreads over classes of the same price.
        """
        order: list[list[int]] = [[] for _ in range(len(self.spans) + 1)]
        keys = [(price, -n) for price, n in zip(prices, nodes)]
        for c in sorted(range(len(keys)), key=keys.__getitem__):
            order[self.depths[c]].append(c)
        return order

    def _fit(self, asked: Asked) -> tuple[float, Counts]:
        """Rows that fit, and their loss against the bound of the prices.

        Each job keeps the held nodes that it wants. Then the jobs take from the rest in turn.
        """
        rows = [
            tuple(map(min, bid.row, job.held)) for bid, job in zip(asked.bids, self.problem.jobs)
        ]
        if sum(map(sum, rows)) > sum(self.caps) - self.spare:  # the ceiling allows less
            return math.inf, ((0,) * len(self.caps),) * len(rows)
        left = [cap - sum(column) for cap, column in zip(self.caps, zip(*rows))]
        budget, lost = sum(left) - self.spare, 0.0
        turns = sorted(range(len(rows)), key=lambda at: -self._urgency[at])
        for at in self._in_time(turns):
            bid = asked.bids[at]
            if bid.row == rows[at]:
                continue
            limits = [min(n, budget) for n in left]
            got = self.bidders[at].answer(asked.prices, self._order(asked.prices, left), limits)
            self._urgency[at] += bid.surplus - got.surplus
            lost += bid.surplus - got.surplus
            row = got.row if sum(got.row) - sum(rows[at]) <= budget else rows[at]
            if row_fault(self.problem.jobs[at], row):
                row = (0,) * len(row)  # it keeps too few nodes to run
            left = [n - new + old for n, new, old in zip(left, row, rows[at])]
            budget -= sum(row) - sum(rows[at])
            rows[at] = row
        return lost + self.supply(asked.prices).worth(left), tuple(rows)
