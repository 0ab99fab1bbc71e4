"""Brings the jobs of each user and account under their ceilings, by capping what they ask for.

The allocator knows one ceiling alone, that of all jobs. Jobs of a user that get more than they may
have share out what they may have in a problem of their own. Then no job asks for more than it gets
there, and the next answer gives the rest to others.
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
    """The problem in which the jobs of each group that was given too much ask for less; the same
    if there is none. Groups that share no job are seen to at once, others one after the other."""
    for _, alike in groupby(quotas, lambda quota: quota.ceiling.user is None):
        jobs = list(problem.jobs)
        for quota in alike:
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
    """What each job of a group that was given too much may ask for. They share what they were given
    and what they hold, so that nobody else's nodes count."""
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
    if sum(sizes) <= quota.most:  # else there is no answer: they keep what they have
        yield from zip(members, sizes)


def at_most(ask: JobAsk, units: int) -> JobAsk:
    """The ask for so many units at most; for nothing, and what is held given back, if no size that
    it may have is so small."""
    if units >= ask.max_nodes:
        return ask
    most = ask.settled(units)
    if most:
        return replace(ask, max_nodes=most)
    return replace(ask, held=(0,) * len(ask.held), may_grow=False, claim=0.0)
