"""Gives nodes where they add most per node, until all are given: the floor under other solvers.

Jobs start empty and climb the concave hull of their value over sizes. The steepest next step of all
jobs comes first. Keeping nodes is a step like any other, and its gain includes the cost of losing
them. The answer is always feasible, often optimal with a single class. It is never worse than no
change where that is allowed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from operator import le, sub
from typing import NamedTuple, Optional

from slurm_hooks.allocation.problem import JobAsk, Problem, never
from slurm_hooks.allocation.value import (
    Counts,
    Row,
    held_counts,
    is_feasible,
    kinks,
    may_gain,
    nodes_to_give,
    periods,
    row_value,
    size_range,
    value,
)


class _Stock(NamedTuple):
    """The nodes left to give: by class, and over all classes."""

    free: list[int]
    budget: int

    def less(self, old: Row, new: Row) -> Optional[_Stock]:
        """The stock once a job has `new` instead of `old`. None if there are too few nodes."""
        added = list(map(sub, new, old))
        if sum(added) > self.budget or not all(map(le, added, self.free)):
            return None
        return _Stock(list(map(sub, self.free, added)), self.budget - sum(added))


class _Climber:
    """A job on its way up, and the classes that it may keep and gain, in the order of filling."""

    def __init__(self, problem: Problem, job: JobAsk, row: Row) -> None:
        self.job, self._spans = job, periods(problem)
        self._closing = [min(c.open_s, problem.horizon_s) for c in problem.classes]
        order = sorted(range(len(row)), key=lambda c: -problem.classes[c].open_s)
        self._keep = [c for c in order if job.held[c]]
        self._new = [c for c in order if may_gain(job, c)]
        self.move_to(row)

    def move_to(self, row: Row) -> None:
        """Hold `row` from now on."""
        self.row, self._value = row, row_value(self.job, self._spans, row)

    def next_step(self, stock: _Stock) -> tuple[float, Row]:
        """The row with the greatest gain per node, the smallest of equals, and this gain.

        The gain is 0 if no step pays.
        """
        best, size = (0.0, self.row), sum(self.row)
        for row in self._rows(stock):
            gain = (row_value(self.job, self._spans, row) - self._value) / (sum(row) - size)
            if gain > best[0]:
                best = gain, row
        return best

    def _rows(self, stock: _Stock) -> Iterator[Row]:
        """The useful rows, growing: sizes where progress, classes or costs have a kink."""
        job, size = self.job, sum(self.row)
        if job.is_off_unit:
            if not size and job.may_have(job.size) and stock.less(self.row, job.held):
                yield job.held
            return
        fills = list(self._fills(stock.free))
        reach = size + min(sum(n for _, n in fills), stock.budget)
        sizes = {*kinks(job, reach), job.size, job.size + job.unit, *self._edges(fills, size)}
        allowed, row = size_range(job, reach), list(self.row)
        for target in sorted(n for n in sizes if n > size and n in allowed):
            missing = target - sum(row)
            while missing:
                c, nodes = fills[0]
                taken = min(nodes, missing)
                row[c] += taken
                missing -= taken
                fills[0] = (c, nodes - taken)
                if taken == nodes:
                    fills.pop(0)
            yield tuple(row)

    def _edges(self, fills: Sequence[tuple[int, int]], size: int) -> Iterator[int]:
        """The sizes at which a class is used up and the next class closes at another time."""
        for (c, nodes), (following, _) in zip(fills, fills[1:]):
            size += nodes
            if self._closing[c] != self._closing[following]:
                yield size

    def _fills(self, free: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Classes and the available nodes of each: the held nodes, and more once all are kept."""
        job, left, unit = self.job, list(free), self.job.unit
        keeps_all = True
        for c in self._keep:
            missing = max(0, job.held[c] - self.row[c])
            nodes = min(missing, free[c] // unit * unit)
            left[c] -= nodes
            keeps_all = keeps_all and nodes == missing
            yield c, nodes
        if keeps_all:
            self._new = [c for c in self._new if free[c] >= unit]  # it only shrinks
            yield from ((c, left[c] // unit * unit) for c in self._new)


def solve_greedy(problem: Problem, is_late: Callable[[], bool] = never) -> Counts:
    """Feasible counts (job, class) by marginal gain, or the held counts if they are worth as much.

    `is_late` ends the climb early. The problem must not contradict itself (`value.contradiction`).
    """
    none = ((0,) * len(problem.classes),) * len(problem.jobs)
    climbed = climb_from(problem, none, is_late)
    held = held_counts(problem)
    if is_feasible(problem, held) and value(problem, held) >= value(problem, climbed):
        return held
    return climbed


def climb_from(problem: Problem, rows: Counts, is_late: Callable[[], bool] = never) -> Counts:
    """Extend `rows` (job, class) by all that adds value, steepest first, until `is_late`.

    Each of `rows` must be allowed, empty, or a part of its job's held row. Together they must fit.
    """
    climbers = [_Climber(problem, job, row) for job, row in zip(problem.jobs, rows)]
    used = [sum(column) for column in zip(*rows)]
    free = [k.capacity - n for k, n in zip(problem.classes, used)]
    stock = _Stock(free, nodes_to_give(problem) - sum(used))
    heap: list[tuple[float, str, int, Row]] = []

    def push(at: int) -> None:
        gain, row = climbers[at].next_step(stock)
        if gain:  # stock only shrinks, so a step that it still covers stays the best
            heapq.heappush(heap, (-gain, climbers[at].job.name, at, row))

    for at in range(len(climbers)):
        if is_late():
            break
        push(at)
    while heap and not is_late():
        _, _, at, row = heapq.heappop(heap)
        rest = stock.less(climbers[at].row, row)
        if rest is not None:
            stock = rest
            climbers[at].move_to(row)
        push(at)
    return tuple(climber.row for climber in climbers)
