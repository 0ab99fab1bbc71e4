"""Gives nodes where they add most per node, until all are given: the floor under other solvers.

Jobs start empty and climb the concave hull of their value over sizes. The steepest next step of all
jobs comes first. Keeping nodes is a step like any other, and its gain includes the cost of losing
them. The answer is always feasible, often optimal with a single class. It is never worse than no
change where that is allowed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import le, sub
from typing import Optional

from slurm_hooks.allocation.problem import JobAsk, Problem, never
from slurm_hooks.allocation.value import (
    Counts,
    Period,
    Row,
    closing_order,
    held_counts,
    is_feasible,
    is_off_unit,
    kinks,
    may_gain,
    nodes_to_give,
    periods,
    row_value,
    size_range,
    value,
)


@dataclass(frozen=True)
class _Step:
    """A step from a row of a job to a larger row. `gain` is the value added per node."""

    gain: float
    row: Row


@dataclass
class _Stock:
    """The nodes left to give: by class, and over all classes."""

    free: list[int]
    budget: int

    def covers(self, old: Row, new: Row) -> bool:
        """Tell whether the step from `old` to `new` can still be made."""
        added = list(map(sub, new, old))
        return sum(added) <= self.budget and all(map(le, added, self.free))

    def take(self, old: Row, new: Row) -> None:
        """Hand out the nodes that `new` has beyond `old`."""
        self.free = list(map(sub, self.free, map(sub, new, old)))
        self.budget -= sum(new) - sum(old)


@dataclass(frozen=True)
class _Way:
    """Classes in the order of filling, and for how many periods each (class) stays open."""

    order: list[int]
    depths: list[int]


class _Climber:
    """A job on its way up, and the classes that it may keep and gain, in the order of filling."""

    def __init__(self, job: JobAsk, spans: tuple[Period, ...], way: _Way) -> None:
        self.job = job
        self.row: Row = (0,) * len(way.depths)
        self._spans = spans
        self._depths = way.depths
        self._keep = [c for c in way.order if job.held[c]]
        self._new = [c for c in way.order if may_gain(job, c)]
        self._value = row_value(job, spans, self.row)

    def move_to(self, row: Row) -> None:
        """Hold `row` from now on."""
        self.row = row
        self._value = row_value(self.job, self._spans, row)

    def next_step(self, stock: _Stock) -> Optional[_Step]:
        """The step with the greatest gain per node, the smallest of equals.

        None if no step pays.
        """
        best: Optional[_Step] = None
        size = sum(self.row)
        for row in self._rows(stock):
            added = sum(row) - size
            gain = (row_value(self.job, self._spans, row) - self._value) / added
            if gain > (best.gain if best else 0.0):
                best = _Step(gain, row)
        return best

    def _rows(self, stock: _Stock) -> Iterator[Row]:
        """The useful rows, growing: sizes where progress, classes or costs have a kink."""
        job, size = self.job, sum(self.row)
        if is_off_unit(job):
            if not size and job.may_have(job.size) and stock.covers(self.row, job.held):
                yield job.held
            return
        fills = list(self._fills(stock))
        reach = size + min(sum(n for _, n in fills), stock.budget)
        sizes = set(kinks(job, reach)) | {job.size, job.size + job.unit}
        sizes.update(self._edges(fills, size))
        row = list(self.row)
        allowed = size_range(job, reach)
        for target in sorted(n for n in sizes if n > size and n in allowed):
            self._fill(row, fills, target)
            yield tuple(row)

    def _edges(self, fills: list[tuple[int, int]], size: int) -> Iterator[int]:
        """The sizes at which a class is used up and the next class closes at another time."""
        for at, (c, nodes) in enumerate(fills):
            size += nodes
            if at + 1 == len(fills) or self._depths[fills[at + 1][0]] != self._depths[c]:
                yield size

    def _fills(self, stock: _Stock) -> Iterator[tuple[int, int]]:
        """Classes and the available nodes of each.

        Held classes come first, new classes if all are kept.
        """
        job, free = self.job, list(stock.free)
        keeps_all = True
        for c in self._keep:
            missing = max(0, job.held[c] - self.row[c])
            nodes = min(missing, free[c] // job.unit * job.unit)
            free[c] -= nodes
            keeps_all = keeps_all and nodes == missing
            yield c, nodes
        if keeps_all:
            self._new = [c for c in self._new if stock.free[c] >= job.unit]  # it only shrinks
            for c in self._new:
                yield c, free[c] // job.unit * job.unit

    @staticmethod
    def _fill(row: list[int], fills: list[tuple[int, int]], target: int) -> None:
        missing = target - sum(row)
        while missing > 0:
            c, nodes = fills[0]
            taken = min(nodes, missing)
            row[c] += taken
            missing -= taken
            fills[0] = (c, nodes - taken)
            if taken == nodes:
                fills.pop(0)


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
    spans = periods(problem)
    stock = _Stock([c.capacity for c in problem.classes], nodes_to_give(problem))
    depths = [sum(span.is_open[c] for span in spans) for c in range(len(problem.classes))]
    way = _Way(closing_order(problem.classes), depths)
    climbers = [_Climber(job, spans, way) for job in problem.jobs]
    for climber, row in zip(climbers, rows):
        stock.take(climber.row, row)
        climber.move_to(row)
    heap: list[tuple[float, str, int, Row]] = []
    for at in range(len(climbers)):
        if is_late():
            break
        _push(heap, climbers, at, stock)
    while heap and not is_late():
        _, _, at, row = heapq.heappop(heap)
        climber = climbers[at]
        if stock.covers(climber.row, row):
            stock.take(climber.row, row)
            climber.move_to(row)
        _push(heap, climbers, at, stock)
    return tuple(climber.row for climber in climbers)


def _push(
    heap: list[tuple[float, str, int, Row]], climbers: list[_Climber], at: int, stock: _Stock
) -> None:
    """Queue the next step of a job. Stock only shrinks, so a step that it covers stays the best."""
    step = climbers[at].next_step(stock)
    if step:
        heapq.heappush(heap, (-step.gain, climbers[at].job.name, at, step.row))
