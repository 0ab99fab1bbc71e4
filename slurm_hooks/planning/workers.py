"""Judges the workers of a pool: which have found no work, when all have, and which signs show work.

Workers never meet, so each comes and goes alone. Exit code 0 says that there was no work left for
this worker. It is put back, and its mark keeps the moment. After that only workers that were
interrupted later start, since they may have left work behind. This ends when the job wishes for
nodes again, or its user cancels a working worker.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.model import (
    BACK_STATES,
    LIVE_STATES,
    WAITING_STATES,
    Fragment,
    FragmentState,
    MalleableJob,
    Said,
    Slurm,
)
from slurm_hooks.model.ends import requeue_of
from slurm_hooks.planning.ground import Ground


def idle_since(fragment: Fragment) -> Optional[datetime]:
    """The moment when this worker found no work and ended. None if it last ended in another way."""
    is_over = fragment.state is FragmentState.DONE and fragment.said is not Said.LEAVING
    if is_over and not fragment.is_leaving:
        return fragment.end or fragment.start
    return fragment.mark.idle


def idle_workers(job: MalleableJob, now: datetime) -> tuple[Fragment, ...]:
    """The workers of a pool that found no work, and know of all there is.

    They know of all as long as the job has not wished for nodes since, and its user has not
    cancelled a working worker since. Slurm tells moments apart by seconds. Within the same second a
    cancel counts as later, or its work might be lost. A wish counts as earlier, or workers that
    wish and end would start without end.
    """
    if not job.way.zero_is_idle:
        return ()
    wish, cancel = job.wish(now), _last_cancel(job)

    def knows_all(since: datetime) -> bool:
        is_newest = wish is None or since >= wish.at
        return is_newest and (cancel is None or since > cancel)

    ended = ((f, idle_since(f)) for f in job.stirring)
    return tuple(f for f, since in ended if since is not None and knows_all(since))


def _last_cancel(job: MalleableJob) -> Optional[datetime]:
    """The last cancel of a worker that may have left work behind.

    Such a worker has run, now or before, and did not end for lack of work.
    """
    cancelled = (f for f in job.stirring if f.state is FragmentState.CANCELLED and not f.mark.idle)
    ends = (f.end for f in cancelled if f.restarts or ran_for(f))
    return max((end for end in ends if end is not None), default=None)


def to_be_started(ground: Ground, job: MalleableJob) -> tuple[Fragment, ...]:
    """The waiting fragments of a pool that may find work.

    All of them may, until a worker has found no work. Then only the fragments interrupted later
    may.
    """
    idle = idle_workers(job, ground.now)
    waiting = tuple(f for f in job.fragments if f.state in WAITING_STATES)
    if not idle:
        return waiting
    newest, known = newest_of(idle), {f.id for f in idle}
    return tuple(f for f in waiting if f.id not in known and _moved_after(f, newest, ground.slurm))


def is_out_of_work(ground: Ground, job: MalleableJob) -> bool:
    """Tell whether a pool has no work left.

    A worker has found no work, no worker runs or is about to, and no worker was interrupted since.
    An ended worker that is to be put back counts as interrupted. An unreadable worker may run.
    """
    idle = idle_workers(job, ground.now)
    if not idle or job.unread or job.cancelled == len(job.fragments):
        return False
    known = {f.id for f in idle}
    is_any_on = any(f.state in LIVE_STATES for f in job.fragments)
    is_any_back = any(f.state in BACK_STATES and f.id not in known for f in job.fragments)
    return not (is_any_on or is_any_back or to_be_started(ground, job))


def newest_of(idle: tuple[Fragment, ...]) -> datetime:
    """The moment when the last of these workers found no work. ValueError without workers."""
    return max(since for f in idle if (since := idle_since(f)) is not None)


def _moved_after(fragment: Fragment, moment: datetime, slurm: Slurm) -> bool:
    """Tell whether it was requeued, put back or released at this moment or later.

    The same second counts, since Slurm tells moments apart by seconds. A release that did not start
    must not hide the run that was interrupted before it.
    """
    moments = (requeue_of(fragment, slurm), fragment.mark.noticed, fragment.mark.released)
    return any(when is not None and when >= moment for when in moments)


def has_worked(ground: Ground, job: MalleableJob, failed: Optional[datetime]) -> bool:
    """Tell whether a worker has run for a whole lease, or has found no work left since `failed`."""
    lease = ground.lane(job).lease_of(job.request)
    ended = (idle_since(f) for f in job.fragments)
    if any(since is not None and (failed is None or since > failed) for since in ended):
        return True
    return any(_has_had(f, lease, ground.now) for f in job.fragments)


def _has_had(fragment: Fragment, lease: timedelta, now: datetime) -> bool:
    """Tell whether it has run for a lease. A lease that a hole cut short counts once it is over."""
    if fragment.state is FragmentState.TIMED_OUT and fragment.limit is not None:
        return ran_for(fragment) >= min(fragment.limit, lease)
    if fragment.state is not FragmentState.RUNNING or fragment.start is None:
        return False
    return now - fragment.start >= lease


def ran_for(fragment: Fragment) -> timedelta:
    """The time that an ended run took. Zero if that is not known."""
    if fragment.start is None or fragment.end is None:
        return timedelta(0)
    return max(fragment.end - fragment.start, timedelta(0))


def outlived(ground: Ground, fragment: Fragment, job: MalleableJob) -> bool:
    """Tell whether another worker shows that the script works.

    It has run for at least failures.join_s, and for longer than the dead worker. Workers that die
    in turn do not excuse each other.
    """
    oldest = job.oldest_start
    if oldest is None:
        return False
    least, ran = timedelta(seconds=ground.settings.failures.join_s), ground.now - oldest
    return ran >= least and ran > ran_for(fragment)
