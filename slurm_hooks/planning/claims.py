"""Whose minimum comes first: nobody has nodes beyond its own while another could start with them.

Progress alone would leave a wide job waiting for ever: nodes that it uses badly are worth more to a
neighbour that scales well. And where not all have room with their minimum, who waits does not
wait for ever either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.allocation.problem import JobAsk
from slurm_hooks.model import MalleableJob, Slurm, Snapshot
from slurm_hooks.planning.moments import requeue_of
from slurm_hooks.planning.situation import Situation
from slurm_hooks.settings import Planning

_MOST_TURNS = 4  # a claim far above all progress would hide it from the solvers' gap


def with_claims(
    situations: Sequence[Situation], asks: Sequence[JobAsk], snapshot: Snapshot, plan: Planning
) -> tuple[JobAsk, ...]:
    """The asks, each node of a minimum worth more than any node beyond one, since no speed-up is
    above linear; and the job's own weight more for each `patience_s` that it has waited for it.

    Who has run for less than that stays: of several who wait each would oust the one before it.
    Of those that have waited for all their turns one after the other claims as many nodes as
    anybody: a narrow one's minimum is worth less than what a wide one has, however long it waits.
    """
    most = max((ask.weight for ask in asks), default=0.0)
    trained = max(0.0, 1 - plan.start_s / plan.horizon_s)
    boosts = [_boost(s, ask, snapshot, plan.patience_s) for s, ask in zip(situations, asks)]
    overdue = _overdue(situations, asks, snapshot, plan.patience_s)
    claimed = [a.min_nodes for a, boost in zip(asks, boosts) if boost or overdue is not None]
    widest = max(claimed, default=0)
    stay = (most + max(boosts, default=0.0)) * (1 if overdue is None else 2) if widest else 0.0
    found = []
    for situation, ask, boost in zip(situations, asks, boosts):
        node, nodes = most if situation.job.request.min_nodes else 0.0, ask.min_nodes
        if situation.size < situation.least and trained:
            node = (node + boost) / trained
            nodes = widest if situation is overdue else nodes
        elif node and _has_begun(situation.job, snapshot, plan.patience_s):
            node += stay
            nodes = max(nodes, widest)  # a wide one would bid more than a narrow one has
        claim = node * nodes - _above_linear(ask)
        found.append(replace(ask, claim=max(0.0, claim) if ask.weight > 0 else 0.0))
    return tuple(found)


def _above_linear(ask: JobAsk) -> float:
    """What its minimum is worth beyond one of a job that scales perfectly: a job of which nothing
    is known counts more to get its share of what others have beyond theirs, not to oust them."""
    return ask.weight * max(0.0, ask.speedup(ask.min_nodes) - ask.min_nodes)


def _boost(situation: Situation, ask: JobAsk, snapshot: Snapshot, patience_s: float) -> float:
    """What a node of its minimum is worth more to a job because it has waited for it."""
    if situation.size >= situation.least:
        return 0.0
    return ask.weight * _turns(waited(situation.job, snapshot), patience_s)


def _overdue(
    situations: Sequence[Situation], asks: Sequence[JobAsk], snapshot: Snapshot, patience_s: float
) -> Optional[Situation]:
    """Of the jobs that have waited for all their turns, the one whose turn it is now: one of them
    may wait for nodes that are not there at all."""
    late = [
        situation
        for situation, ask in zip(situations, asks)
        if situation.size < situation.least and situation.job.request.min_nodes and ask.weight > 0
        if _turns(waited(situation.job, snapshot), patience_s) == _MOST_TURNS
    ]
    late.sort(key=lambda situation: situation.job.job_id)
    turn = int(snapshot.now.timestamp() // (patience_s / _MOST_TURNS)) if late else 0
    return late[turn % len(late)] if late else None


def _has_begun(job: MalleableJob, snapshot: Snapshot, patience_s: float) -> bool:
    """True if the job is in the first `patience_s` of its run, or about to begin it."""
    since = job.oldest_start
    return since is None or (snapshot.now - since).total_seconds() < patience_s


def _turns(waited_for: timedelta, patience_s: float) -> int:
    """How many times the job has waited for its patience, up to `_MOST_TURNS`."""
    if not patience_s:
        return 0
    return min(_MOST_TURNS, int(waited_for.total_seconds() // patience_s))


def waits_too_long(situation: Situation, snapshot: Snapshot, plan: Planning) -> bool:
    """True if a job that could start now, were there nodes, has had none for `patience_s`, or less
    than its minimum."""
    if not plan.patience_s or not situation.is_placed or situation.size >= situation.least:
        return False
    return waited(situation.job, snapshot).total_seconds() >= plan.patience_s


def waited(job: MalleableJob, snapshot: Snapshot) -> timedelta:
    """How long a job that does not run has waited: since its submission, since the last of its
    fragments was put back or preempted, or since it waited for other jobs."""
    known = (when for when in _moments(job, snapshot.slurm) if when <= snapshot.now)
    return snapshot.now - max(known, default=snapshot.now)


def _moments(job: MalleableJob, slurm: Slurm) -> Iterator[datetime]:
    if job.submitted is not None:
        yield job.submitted
    for fragment in job.fragments:
        mark = fragment.mark
        yield from filter(None, (mark.noticed, mark.depended, requeue_of(fragment, slurm)))
