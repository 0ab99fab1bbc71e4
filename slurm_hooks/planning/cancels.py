"""Finds out whether a user has cancelled some fragments of a job, or the whole job."""

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

_RACE = timedelta(seconds=10)  # the longest time from reading a fragment to the end of a write


class CancelScope(enum.Enum):
    """The part of a job that its user has cancelled since the last tick."""

    NOTHING = "nothing"  # or a part that a mark already counts
    PART = "part"
    WHOLE = "whole"  # no part of the job may come back
    UNCLEAR = "unclear"  # known once its ending fragments have ended


def lost_elements(job: MalleableJob) -> int:
    """Count the elements that Slurm no longer has: cancelled, or without a record.

    Slurm (22.05) drops the record of a cancelled element that was never released at once.
    """
    left = len(job.fragments) - job.cancelled
    return max(0, job.request.fragments - left - job.unread)


def cancel_scope(job: MalleableJob, slurm: Slurm) -> CancelScope:
    """Tell how much of the job its user has cancelled.

    Cancelling a job reaches its waiting and running elements, and no element that has just ended.
    So the user cancelled the whole job if elements went after the other marks were written, and no
    element is left that could go on. A fragment that we put back during the cancel does not count.
    """
    if lost_elements(job) <= max((f.mark.gone for f in job.fragments), default=0):
        return CancelScope.NOTHING
    ends = [f.end for f in job.fragments if f.state is FragmentState.CANCELLED and f.end]
    unended = (f for f in job.fragments if f.state not in ENDED_STATES)
    alive = [f for f in unended if not _was_put_back(f, ends, slurm)]
    if not (ends or job.is_cut):
        return CancelScope.PART  # Slurm has forgotten them, and reports no cancel
    if not alive:
        return CancelScope.WHOLE
    is_ending = all(f.state is FragmentState.ENDING for f in alive)
    return CancelScope.UNCLEAR if is_ending else CancelScope.PART


def _was_put_back(fragment: Fragment, cancels: list[datetime], slurm: Slurm) -> bool:
    """Tell whether we put it back at about the time when others were cancelled.

    The mark alone may belong to a notice, after which the fragment put itself back.
    """
    marked, requeued = fragment.mark.noticed, requeue_of(fragment, slurm)
    if fragment.state not in WAITING_STATES or marked is None or not cancels:
        return False
    return all(timedelta(0) <= max(cancels) - at <= _RACE for at in (marked, requeued or marked))


def is_crippled(job: MalleableJob) -> bool:
    """Tell whether the user cancelled so many fragments that the rest cannot reach MIN.

    Only a loss counts that an earlier tick has noted too: a row that is missing from one answer is
    no cancel. In a pool any worker is enough. In a job that counts slots any fragment may be
    enough.
    """
    if not job.way.needs_min or job.request.slot is not None:
        return False
    noted = max((f.mark.gone for f in job.fragments), default=0)
    left = job.request.fragments - min(noted, lost_elements(job))
    return left > 0 and left * job.request.unit < job.request.min_nodes
