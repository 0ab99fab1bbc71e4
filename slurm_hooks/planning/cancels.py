"""What a user has cancelled: some fragments of a job, or the job."""

from __future__ import annotations

import enum
from datetime import datetime, timedelta

from slurm_hooks.model import (
    ENDED_STATES,
    WAITING_STATES,
    Fragment,
    FragmentState,
    MalleableJob,
    Slurm,
)
from slurm_hooks.model.ends import requeue_of

_RACE = timedelta(seconds=10)  # at most from the last look at a fragment to the end of a write


class CancelScope(enum.Enum):
    """What the user has cancelled since the last tick."""

    NOTHING = "nothing"  # or a part that is known already
    PART = "part"
    WHOLE = "whole"  # nothing of the job may come back
    UNCLEAR = "unclear"  # known once what is ending has ended


def gone(job: MalleableJob) -> int:
    """Elements that are no more: cancelled, or without a record of their own.

    Slurm (22.05) drops the record of a cancelled element that was never released at once.
    """
    left = len(job.fragments) - job.cancelled
    return max(0, job.request.fragments - left - job.unread)


def cancel_scope(job: MalleableJob, slurm: Slurm) -> CancelScope:
    """What of the job its user has cancelled.

    A cancel of the job reaches what waits and what runs, not what has just ended. So it was the
    whole job if elements went after the marks of the rest were written, and nothing is left that
    could go on by itself; what we put back at the very moment of the cancel does not count.
    """
    if gone(job) <= max((f.mark.gone for f in job.fragments), default=0):
        return CancelScope.NOTHING
    ends = [f.end for f in job.fragments if f.state is FragmentState.CANCELLED and f.end]
    open_ones = (f for f in job.fragments if f.state not in ENDED_STATES)
    alive = [f for f in open_ones if not _was_put_back(f, ends, slurm)]
    if not (ends or job.is_cut):
        return CancelScope.PART  # Slurm has forgotten them: no news of a cancel
    if not alive:
        return CancelScope.WHOLE
    is_ending = all(f.state is FragmentState.ENDING for f in alive)
    return CancelScope.UNCLEAR if is_ending else CancelScope.PART


def _was_put_back(fragment: Fragment, cancels: list[datetime], slurm: Slurm) -> bool:
    """True if we put it back at about the time when others were cancelled.

    The mark alone may be of a notice, and then the fragment put itself back, later.
    """
    marked, requeued = fragment.mark.noticed, requeue_of(fragment, slurm)
    if fragment.state not in WAITING_STATES or marked is None or not cancels:
        return False
    return all(timedelta(0) <= max(cancels) - at <= _RACE for at in (marked, requeued or marked))


def is_crippled(job: MalleableJob) -> bool:
    """True if the user cancelled so many fragments that the rest can never be enough; of a pool
    any worker is, and of one that counts slots any fragment may be."""
    if not job.way.needs_min or job.request.slot is not None:
        return False
    left = job.request.fragments - gone(job)
    return left > 0 and left * job.request.unit < job.request.min_nodes
