"""Brings the jobs of each user and account under their ceilings, by capping their asks.

The allocator knows only the ceiling of all jobs. Jobs of a user that get more than they may have
share out the allowed units in a separate problem. Then no job asks for more than it gets there, and
the next answer gives the rest to others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from slurm_hooks.allocation.problem import Allocation, JobAsk, Problem
from slurm_hooks.planning.quotas import Quota

Solver = Callable[[Problem], Allocation]


def capped(problem: Problem, quotas: Iterable[Quota]) -> Problem:
    """The problem in which no job asks for more than its user and its account may have."""
    jobs = list(problem.jobs)
    for quota in quotas:
        for at in _members(problem, quota):
            jobs[at] = at_most(jobs[at], quota.most)
    return replace(problem, jobs=tuple(jobs))


def under_quotas(
    problem: Problem, allocation: Allocation, quotas: Sequence[Quota], solve: Solver
) -> Problem:
    """The problem in which the jobs of each group that was given too much ask for less.

    It is the same problem if there is no such group. Groups without common jobs are handled
    together, other groups in turn.
    """
    for _, similar in groupby(quotas, lambda quota: quota.ceiling.user is None):
        jobs = list(problem.jobs)
        for quota in similar:
            for at, units in _shares(problem, allocation, quota, solve):
                jobs[at] = at_most(jobs[at], units)
        if tuple(jobs) != problem.jobs:
            return replace(problem, jobs=tuple(jobs))
    return problem


def _members(problem: Problem, quota: Quota) -> list[int]:
    return [at for at, ask in enumerate(problem.jobs) if int(ask.name) in quota.jobs]


def _shares(
    problem: Problem, allocation: Allocation, quota: Quota, solve: Solver
) -> Iterator[tuple[int, int]]:
    """The units that each job of a group that was given too much may ask for.

    The jobs share the units that they were given and hold, so no other jobs' nodes count.
    """
    members = _members(problem, quota)
    rows = [allocation.counts[at] for at in members]
    if sum(map(sum, rows)) <= quota.most:
        return
    jobs = tuple(problem.jobs[at] for at in members)
    won, held = map(sum, zip(*rows)), map(sum, zip(*(job.held for job in jobs)))
    most = map(max, won, held)
    classes = tuple(replace(each, capacity=n) for each, n in zip(problem.classes, most))
    own = replace(problem, jobs=jobs, classes=classes, headroom_nodes=0, ceiling_nodes=quota.most)
    sizes = list(map(sum, solve(own).counts))
    if sum(sizes) <= quota.most:  # else there is no answer, and the jobs keep their nodes
        yield from zip(members, sizes)


def at_most(ask: JobAsk, units: int) -> JobAsk:
    """Limit the ask to so many units.

    If no allowed size is so small, the job asks for 0 units and gives back all that it holds.
    """
    if units >= ask.max_nodes:
        return ask
    most = ask.settled(units)
    if most:
        return replace(ask, max_nodes=most)
    return replace(ask, held=(0,) * len(ask.held), may_grow=False, claim=0.0)
