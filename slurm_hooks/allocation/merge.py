"""Merges classes between which no job sees a difference, for smaller problems in every solver.

Classes differ for reasons (features, switches, holes that end after the look-ahead) that matter
when single nodes are picked, but often not for the counts. Merging is exact: every allocation of
the merged problem splits into an allocation of the same value, and the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat

from slurm_hooks.allocation.problem import JobAsk, NodeClass, Problem
from slurm_hooks.allocation.value import Counts, is_off_unit


@dataclass(frozen=True)
class Merged:
    """A smaller `problem`, and the `groups` of original classes that its classes stand for."""

    original: Problem
    problem: Problem
    groups: tuple[tuple[int, ...], ...]

    def split(self, counts: Counts) -> Counts:
        """Turn `counts` of the merged problem into counts of the original problem of equal worth.

        Jobs keep their nodes in the order of the classes. New nodes come in that order too.
        """
        classes = self.original.classes
        rows = [[0] * len(classes) for _ in counts]
        for row, job, merged in zip(rows, self.original.jobs, counts):
            for group, wanted in zip(self.groups, merged):
                if wanted:
                    _move(row, group, wanted, list(job.held), 1)
        columns = zip(*rows) if rows else repeat(())
        free = [k.capacity - sum(column) for k, column in zip(classes, columns)]
        for row, job, merged in zip(rows, self.original.jobs, counts):
            for group, wanted in zip(self.groups, merged):
                if wanted:
                    _move(row, group, wanted - sum(row[c] for c in group), free, job.unit)
        return tuple(tuple(row) for row in rows)


def _move(
    row: list[int], group: tuple[int, ...], wanted: int, supply: list[int], unit: int
) -> None:
    """Move up to `wanted` nodes from `supply` (class) into `row`, whole units from each class."""
    for c in group:
        taken = min(wanted, supply[c] // unit * unit)
        row[c] += taken
        supply[c] -= taken
        wanted -= taken


def merge(problem: Problem) -> Merged:
    """Merge classes that close at the same time, as far as the look-ahead goes, for the same jobs.

    All jobs need the same unit. Otherwise leftover nodes of several classes would add up to units
    that do not exist.
    """
    units = {job.unit for job in problem.jobs}
    if len(units) != 1 or any(is_off_unit(job) for job in problem.jobs):
        return Merged(problem, problem, tuple((c,) for c in range(len(problem.classes))))
    groups: dict[tuple[object, ...], list[int]] = {}
    growing = [job.usable for job in problem.jobs if job.may_grow]
    users_of = zip(*growing) if growing else repeat(())
    for c, (node_class, users) in enumerate(zip(problem.classes, users_of)):
        groups.setdefault((min(node_class.open_s, problem.horizon_s), users), []).append(c)
    members = tuple(tuple(group) for group in groups.values())
    return Merged(problem, _with_groups(problem, members, units.pop()), members)


def _with_groups(problem: Problem, groups: tuple[tuple[int, ...], ...], unit: int) -> Problem:
    """The problem in whole units. Leftover nodes are taken out, first of the headroom."""
    classes = tuple(
        NodeClass(
            capacity=sum(problem.classes[c].capacity // unit * unit for c in group),
            open_s=problem.classes[group[0]].open_s,
        )
        for group in groups
    )
    rest = sum(c.capacity % unit for c in problem.classes)
    return replace(
        problem,
        jobs=tuple(_with_groups_of_job(job, groups) for job in problem.jobs),
        classes=classes,
        headroom_nodes=max(0, problem.headroom_nodes - rest),
    )


def _with_groups_of_job(job: JobAsk, groups: tuple[tuple[int, ...], ...]) -> JobAsk:
    held, usable = job.held, job.usable
    return replace(
        job,
        held=tuple(sum([held[c] for c in group]) for group in groups),
        usable=tuple(any(usable[c] for c in group) for group in groups),
    )
