"""Builds a job's part of the linear programme: its sizes, its curve, and the cost of changes.

Jobs meet in `milp`, class by class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulp

from slurm_hooks.allocation.problem import JobAsk, Problem
from slurm_hooks.allocation.value import (
    Period,
    Row,
    change_cost,
    corners,
    is_off_unit,
    kinks,
    may_gain,
    rate,
    row_value,
)

Term = tuple[Any, float]  # (variable, coefficient)


@dataclass
class Sheet:
    """The model under construction: the PuLP problem, and its objective as terms and a constant."""

    lp: Any
    constant: float = 0.0
    _objective: list[Term] = field(default_factory=list)
    _columns: int = 0

    def add(self, upper: float, is_integer: bool, start: float = 0) -> Any:
        """Add a variable from 0 to `upper`, with the value from which the search starts."""
        self._columns += 1
        make = getattr(self.lp, "add_variable", pulp.LpVariable)  # PuLP 3.3 prefers the former
        category = pulp.LpInteger if is_integer else pulp.LpContinuous
        variable = make(f"x{self._columns}", 0, upper, category)
        variable.varValue = float(start)
        return variable

    def at_most(self, terms: Iterable[Term], limit: float) -> None:
        """Require: sum of the terms <= limit."""
        self._constrain(terms, pulp.LpConstraintLE, limit)

    def equal(self, terms: Iterable[Term], limit: float) -> None:
        """Require: sum of the terms = limit."""
        self._constrain(terms, pulp.LpConstraintEQ, limit)

    def gain(self, terms: Iterable[Term]) -> None:
        """Add the terms to the objective."""
        self._objective.extend(terms)

    def finish(self) -> None:
        """Hand the objective to PuLP."""
        self.lp.setObjective(_sum(self._objective))

    def _constrain(self, terms: Iterable[Term], sense: int, limit: float) -> None:
        self.lp.addConstraint(pulp.LpConstraint(_sum(terms), sense, rhs=limit))


def _sum(terms: Iterable[Term]) -> Any:
    """Add up the terms of each variable, which PuLP would not do for a list."""
    by_name: dict[str, Term] = {}
    for variable, factor in terms:
        _, before = by_name.get(variable.name, (variable, 0.0))
        by_name[variable.name] = (variable, before + factor)
    return pulp.LpAffineExpression(list(by_name.values()))


def _at_start(terms: Iterable[Term]) -> float:
    """The sum of the terms where the search starts."""
    return sum(float(variable.varValue) * factor for variable, factor in terms)


def _times(terms: Iterable[Term], factor: float) -> list[Term]:
    return [(variable, factor * f) for variable, f in terms]


@dataclass(frozen=True)
class JobModel:
    """The nodes of a job as terms, by class."""

    nodes: tuple[list[Term], ...]

    def row(self) -> Row:
        """The counts (class) in the solver's answer."""
        return tuple(sum(round(v.varValue or 0) * int(f) for v, f in terms) for terms in self.nodes)


def add_job(
    sheet: Sheet, problem: Problem, at: int, spans: Sequence[Period], start: Row
) -> JobModel:
    """Add the job at position `at` to the model: variables, rules, and its share of the value.

    The search starts from the counts `start` (class).
    """
    job = problem.jobs[at]
    if is_off_unit(job):
        return _add_fixed(sheet, job, spans, any(start))
    keep, new = _add_nodes(sheet, problem, job, start)
    nodes = tuple(k + n for k, n in zip(keep, new))
    _forbid_migration(sheet, job, keep, new)
    _add_progress(sheet, job, nodes, spans)
    return JobModel(nodes)


def _add_fixed(
    sheet: Sheet, job: JobAsk, spans: Sequence[Period], is_kept_at_start: bool
) -> JobModel:
    """Add a job that is kept unchanged or given up: a single choice, valued beforehand."""
    none = (0,) * len(job.held)
    kept = sheet.add(1 if job.may_have(job.size) else 0, is_integer=True, start=is_kept_at_start)
    worth = row_value(job, spans, job.held), row_value(job, spans, none)
    sheet.gain([(kept, worth[0] - worth[1])])
    sheet.constant += worth[1]
    return JobModel(tuple([(kept, float(n))] if n else [] for n in job.held))


def _add_nodes(
    sheet: Sheet, problem: Problem, job: JobAsk, start: Row
) -> tuple[list[list[Term]], list[list[Term]]]:
    """Add variables for kept and for new nodes (class), counted in units."""
    room = max(0, job.max_nodes - job.size)
    unit = job.unit
    keep, new = [], []
    for c, node_class in enumerate(problem.classes):
        held, wanted = job.held[c] // unit, start[c] // unit
        most = min(node_class.capacity, room) // unit if may_gain(job, c) else 0
        kept, gained = min(held, wanted), max(0, wanted - held)
        keep.append([(sheet.add(held, True, kept), float(unit))] if held else [])
        new.append([(sheet.add(most, True, gained), float(unit))] if most else [])
    return keep, new


def _forbid_migration(
    sheet: Sheet, job: JobAsk, keep: list[list[Term]], new: list[list[Term]]
) -> None:
    """Require all held nodes for a gain.

    The rest up to MAX bounds the gain, as the tightest factor.
    """
    kept = [t for terms in keep for t in terms]
    gained = [t for terms in new for t in terms]
    if kept and gained:
        grows = sheet.add(1, is_integer=True, start=_at_start(gained) > 0)
        sheet.at_most([*gained, (grows, -float(job.max_nodes - job.size))], 0)
        sheet.at_most([(grows, float(job.size)), *_times(kept, -1)], 0)


def _add_progress(
    sheet: Sheet, job: JobAsk, nodes: tuple[list[Term], ...], spans: Sequence[Period]
) -> None:
    """Tie size to MIN and MAX and to the curve, once for each set of classes open together."""
    all_classes = frozenset(c for c, terms in enumerate(nodes) if terms)
    if not all_classes:
        return
    seconds = {all_classes: 0.0}
    for span in spans:
        opened = frozenset(c for c in all_classes if span.is_open[c])
        seconds[opened] = seconds.get(opened, 0.0) + span.seconds
    for opened, length in sorted(seconds.items(), key=lambda item: sorted(item[0])):
        size = [t for c in sorted(opened) for t in nodes[c]]
        if opened == all_classes:
            _add_whole(sheet, job, size, length)
        elif opened and length:
            _add_rest(sheet, job, size, length)


def _add_whole(sheet: Sheet, job: JobAsk, size: list[Term], seconds: float) -> None:
    """Add the whole size: 0 or from MIN to MAX, and its value, including the cost of a change.

    With costs on the curve instead of on flags, the relaxation is as tight as a single job allows.
    """

    def worth(n: int) -> float:
        cost = change_cost(job, max(0, n - job.size), max(0, job.size - n))
        return seconds * rate(job, n) - cost

    none = worth(0)
    sheet.constant += none
    sizes = corners(job, _most(size))
    if not sizes:
        sheet.at_most(size, 0)
        return
    points = [(n, worth(n) - none) for n in sizes]
    mixed, _ = _add_curve(sheet, job, points, _at_start(size))
    sheet.equal([*size, *_times(mixed, -1)], 0)


def _add_rest(sheet: Sheet, job: JobAsk, size: list[Term], seconds: float) -> None:
    """Add the size that is left when some class has closed. Below MIN the job makes no progress."""
    sizes = kinks(job, _most(size))
    if not sizes:
        return
    points = [(n, seconds * rate(job, n)) for n in sizes]
    mixed, runs = _add_curve(sheet, job, points, _at_start(size))
    too_few = float(sizes[0] - job.unit)
    covered = mixed if job.sizes is None else _covered(mixed, job.unit, _most(size))
    sheet.at_most([*mixed, *_times(size, -1)], 0)
    sheet.at_most([*size, *_times(covered, -1), *_times(runs, too_few)], too_few)


def _covered(mixed: list[Term], unit: int, most: int) -> list[Term]:
    """The largest number of open nodes that leaves the job at the picked size.

    It is the next size less a unit.
    """
    nexts = [*(size for _, size in mixed[1:]), float(most + unit)]
    return [(weight, above - unit) for (weight, _), above in zip(mixed, nexts)]


def _most(size: list[Term]) -> int:
    return int(sum(variable.upBound * factor for variable, factor in size))


def _add_curve(
    sheet: Sheet, job: JobAsk, points: list[tuple[int, float]], now: float
) -> tuple[list[Term], list[Term]]:
    """Add a size that is a mix of the points (lambda form) or 0, with its value.

    Returns the size as terms, and the binary that says whether it is not 0. If the first point is
    the smallest possible size, 0 is just another point, and there is no binary. A mix over a
    concave stretch is exact when maximised. Where there are several stretches, each has a binary,
    and a single stretch is picked. For a job with explicit sizes each size is a stretch. The search
    starts at the size `now`.
    """
    runs: list[Term] = []
    if points[0][0] == job.unit:
        points = [(0, 0.0), *points]
    else:
        is_running = now >= points[0][0]
        runs = [(sheet.add(1, is_integer=True, start=is_running), 1.0)]
        now = now if is_running else math.nan
    every = range(len(points))
    stretches = (
        _concave_stretches(points) if job.sizes is None else (every[n : n + 1] for n in every)
    )
    mix = _add_mix(sheet, points, [*stretches], runs, now)
    sheet.gain((weight, points[at][1]) for weight, at in mix)
    return [(weight, float(points[at][0])) for weight, at in mix], runs


def _add_mix(
    sheet: Sheet,
    points: Sequence[tuple[int, float]],
    stretches: Sequence[range],
    runs: list[Term],
    now: float,
) -> list[tuple[Any, int]]:
    """Weights (variable, position of its point) that sum to 1, or to the binary in `runs`.

    The search starts from the mix that makes the size `now`, or from no mix if that is not a
    number.
    """
    total, rest = (_times(runs, -1), 0.0) if runs else ([], 1.0)
    picks: list[Term] = []
    mix: list[tuple[Any, int]] = []
    for stretch in stretches:
        shares = _shares([points[at][0] for at in stretch], now)
        now = math.nan if shares else now
        part = [(sheet.add(1, False, shares.get(points[at][0], 0)), at) for at in stretch]
        mix += part
        if len(stretches) > 1:
            picks.append((sheet.add(1, is_integer=True, start=bool(shares)), 1.0))
            sheet.equal([*((weight, 1.0) for weight, _ in part), *_times(picks[-1:], -1)], 0)
    sheet.equal([*(picks or [(weight, 1.0) for weight, _ in mix]), *total], rest)
    return mix


def _shares(sizes: Sequence[int], now: float) -> dict[float, float]:
    """The shares of the two sizes around `now` that make it up. Empty if it is outside."""
    for low, high in zip(sizes, sizes[1:]):
        if low <= now <= high:
            return {low: (high - now) / (high - low), high: (now - low) / (high - low)}
    return {now: 1.0} if list(sizes) == [now] else {}


def _concave_stretches(points: Sequence[tuple[int, float]]) -> Iterator[range]:
    """Positions of the points, in as few stretches with falling slopes as possible."""
    start = 0
    for at in range(1, len(points) - 1):
        (n0, v0), (n1, v1), (n2, v2) = points[at - 1 : at + 2]
        rise, next_rise = (v1 - v0) / (n1 - n0), (v2 - v1) / (n2 - n1)
        is_bend = at > start and next_rise > rise + 1e-9 * max(1.0, abs(rise))
        if is_bend:
            yield range(start, at + 1)
            start = at
    yield range(start, len(points))
