"""Orders the claims of jobs to their minimum, from the state of their fragments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from slurm_hooks.allocation import minimums
from slurm_hooks.allocation.minimums import Standing, turn_at, turns_of
from slurm_hooks.allocation.problem import JobAsk
from slurm_hooks.model import MalleableJob, Slurm
from slurm_hooks.model.ends import requeue_of
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.situation import Situation


def with_claims(
    ground: Ground, situations: Sequence[Situation], asks: Sequence[JobAsk]
) -> tuple[JobAsk, ...]:
    """Return the asks, each with its claim to the job's minimum."""
    standings = [_standing(ground, situation) for situation in situations]
    turn = turn_at(ground.now.timestamp(), ground.settings.plan.patience_s)
    return minimums.with_claims(asks, standings, turn)


def _standing(ground: Ground, situation: Situation) -> Standing:
    job, patience_s = situation.job, ground.settings.plan.patience_s
    is_short = situation.size < situation.least
    waited_s = waited(ground, situation.marked).total_seconds() if is_short else 0.0
    since = job.oldest_start
    ran_s = 0.0 if since is None else (ground.now - since).total_seconds()
    return Standing(
        number=job.job_id,
        is_short=is_short,
        turns=turns_of(waited_s, patience_s),
        has_begun=since is None or ran_s < patience_s,
        has_minimum=job.request.min_nodes > 0 and situation.core < situation.least,
    )


def waits_too_long(ground: Ground, situation: Situation) -> bool:
    """Tell whether a job that could start has been below its minimum for `patience_s`."""
    patience_s = ground.settings.plan.patience_s
    if not patience_s or not situation.is_placed or situation.size >= situation.least:
        return False
    return waited(ground, situation.marked).total_seconds() >= patience_s


def waited(ground: Ground, job: MalleableJob) -> timedelta:
    """The time that a job without fragments has waited.

    It counts from its submission, from the last time when a fragment was put back or preempted, or
    from its last wait for other jobs.
    """
    known = (when for when in _moments(job, ground.slurm) if when <= ground.now)
    return ground.now - max(known, default=ground.now)


def _moments(job: MalleableJob, slurm: Slurm) -> Iterator[datetime]:
    if job.submitted is not None:
        yield job.submitted
    for fragment in job.fragments:
        mark = fragment.mark
        yield from filter(None, (mark.noticed, mark.depended, requeue_of(fragment, slurm)))
