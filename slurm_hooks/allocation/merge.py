"""Merges classes between which hardly any job sees a difference, for smaller problems in every
solver.

Classes differ for reasons (features, switches, holes that end after the look-ahead) that matter
when single nodes are picked, but often not for the counts. If no job sees a difference, merging is
exact: every allocation of the merged problem splits into one of the same value, and the other way
round.

Classes that nearly all the same jobs may use are merged too: a node on which a job died would
otherwise be a class. The merged problem then allows more. If an answer splits nevertheless, it is
the best answer. If not, classes that no job could take are kept apart in the next attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, count, islice, repeat
from typing import NamedTuple

from slurm_hooks.allocation.problem import JobAsk, NodeClass, Problem
from slurm_hooks.allocation.value import Counts

NEARLY = 0.1
"""The share of jobs that may use only some of the classes that are merged."""
LOOKS = 16
"""A class is compared with so many others at most, those that most jobs may use."""


@dataclass(frozen=True)
class Merged:
    """A smaller `problem`, and the `groups` of original classes that its classes stand for.

    It `is_exact` if every job may use all classes of a group or none.
    """

    original: Problem
    problem: Problem
    groups: tuple[tuple[int, ...], ...]
    is_exact: bool = True

    def split(self, counts: Counts) -> tuple[Counts, frozenset[int]]:
        """Turn `counts` of the merged problem into counts of the original problem of equal worth.

        If a job comes short in some groups, the classes of these groups that have nodes left are
        returned too. Jobs keep their nodes in the order of the classes. New nodes come in that
        order too, which begins with the classes that the fewest jobs may use.
        """
        jobs, classes = self.original.jobs, self.original.classes
        rows = [list(job.held) for job in jobs]
        more = [
            [wanted - held for wanted, held in zip(row, job.held)]
            for row, job in zip(counts, self.problem.jobs)
        ]
        for row, gained in zip(rows, more):
            for lent, missing in zip(self.groups, gained):
                _lose(row, lent, -missing)
        columns = zip(*rows) if rows else repeat(())
        free = [k.capacity - sum(column) for k, column in zip(classes, columns)]
        open_groups = [list(group) for group in self.groups]
        short: set[int] = set()
        for row, job, gained in zip(rows, jobs, more):
            for group, missing in zip(open_groups, gained):
                if _gain(row, group, missing, job, free):
                    short.update(group)
        return tuple(map(tuple, rows)), frozenset(c for c in short if free[c])


def _lose(row: list[int], group: Sequence[int], surplus: int) -> None:
    """Take this many nodes out of `row`, from the last class of the group first."""
    for c in reversed(group):
        if surplus <= 0:
            return
        taken = min(surplus, row[c])
        row[c] -= taken
        surplus -= taken


def _gain(row: list[int], group: list[int], missing: int, job: JobAsk, free: list[int]) -> bool:
    """Put this many `free` nodes into `row`, in whole units. Tell whether too few are there.

    Classes at the head of the group that have no node left are dropped from it.
    """
    for c in group if missing > 0 else ():
        taken = min(missing, free[c] // job.unit * job.unit) if job.usable[c] else 0
        row[c] += taken
        free[c] -= taken
        missing -= taken
        if missing <= 0:
            break
    while group and not free[group[0]]:
        del group[0]
    return missing > 0


def merge(problem: Problem, apart: frozenset[int] = frozenset()) -> Merged:
    """Merge classes that close at the same time, as far as the look-ahead goes, for nearly the same
    jobs. Classes that are `apart` are merged for exactly the same jobs only.

    All jobs need the same unit. Otherwise leftover nodes of several classes would add up to units
    that do not exist.
    """
    units = {job.unit for job in problem.jobs}
    if len(units) != 1 or any(job.is_off_unit for job in problem.jobs):
        return Merged(problem, problem, tuple((c,) for c in range(len(problem.classes))))
    equal = _equal(problem, apart)
    members = _joined(equal)
    small = _with_groups(problem, members, units.pop())
    return Merged(problem, small, members, len(members) == len(equal))


class _Group(NamedTuple):
    """Classes that are open for equally long, for the same `users`, by their place among jobs."""

    open_s: float
    users: frozenset[int]
    is_apart: bool

    def is_near(self, other: _Group) -> bool:
        """Tell whether nearly the same jobs may use both, and neither is apart."""
        if self.open_s != other.open_s or self.is_apart or other.is_apart:
            return False
        return len(self.users ^ other.users) <= NEARLY * len(self.users)


def _equal(problem: Problem, apart: frozenset[int]) -> dict[_Group, list[int]]:
    """Group classes between which no job sees a difference."""
    groups: dict[_Group, list[int]] = {}
    growing = [job.usable for job in problem.jobs if job.may_grow]
    users_of = zip(*growing) if growing else repeat(())
    for c, (node_class, users) in enumerate(zip(problem.classes, users_of)):
        some = frozenset(compress(count(), users))
        key = _Group(min(node_class.open_s, problem.horizon_s), some, c in apart)
        groups.setdefault(key, []).append(c)
    return groups


def _joined(groups: Mapping[_Group, list[int]]) -> tuple[tuple[int, ...], ...]:
    """Join each group to a near group with more users. The classes with fewest users come first."""
    joined: dict[_Group, list[int]] = {}
    for group in sorted(groups, key=lambda group: -len(group.users)):
        near = next((each for each in islice(joined, LOOKS) if each.is_near(group)), group)
        joined[near] = [*groups[group], *joined.get(near, ())]
    return tuple(tuple(members) for members in sorted(joined.values(), key=min))


def _with_groups(problem: Problem, groups: tuple[tuple[int, ...], ...], unit: int) -> Problem:
    """The problem in whole units. Leftover nodes are taken out."""
    classes = tuple(
        NodeClass(
            capacity=sum(problem.classes[c].capacity // unit * unit for c in group),
            open_s=problem.classes[group[0]].open_s,
        )
        for group in groups
    )
    return replace(
        problem,
        jobs=tuple(_with_groups_of_job(job, groups) for job in problem.jobs),
        classes=classes,
    )


def _with_groups_of_job(job: JobAsk, groups: tuple[tuple[int, ...], ...]) -> JobAsk:
    held, usable = job.held, job.usable
    return replace(
        job,
        held=tuple(sum(map(held.__getitem__, group)) for group in groups),
        usable=tuple(any(map(usable.__getitem__, group)) for group in groups),
    )
