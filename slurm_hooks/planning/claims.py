"""Whose minimum comes first: how each job stands, read from its fragments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from slurm_hooks.allocation import minimums
from slurm_hooks.allocation.minimums import Standing, turn_at, turns_of
from slurm_hooks.allocation.problem import JobAsk
from slurm_hooks.model import MalleableJob, Slurm, Snapshot
from slurm_hooks.model.ends import requeue_of
from slurm_hooks.planning.situation import Situation
from slurm_hooks.settings.values import Planning


def with_claims(
    situations: Sequence[Situation], asks: Sequence[JobAsk], snapshot: Snapshot, plan: Planning
) -> tuple[JobAsk, ...]:
    """The asks, each with its claim to the job's minimum."""
    standings = [_standing(situation, snapshot, plan.patience_s) for situation in situations]
    turn = turn_at(snapshot.now.timestamp(), plan.patience_s)
    return minimums.with_claims(asks, standings, turn)


def _standing(situation: Situation, snapshot: Snapshot, patience_s: float) -> Standing:
    job = situation.job
    is_short = situation.size < situation.least
    waited_s = waited(job, snapshot).total_seconds() if is_short else 0.0
    since = job.oldest_start
    ran_s = 0.0 if since is None else (snapshot.now - since).total_seconds()
    return Standing(
        number=job.job_id,
        is_short=is_short,
        turns=turns_of(waited_s, patience_s),
        has_begun=since is None or ran_s < patience_s,
        has_minimum=job.request.min_nodes > 0,
    )


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
