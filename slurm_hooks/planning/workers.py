"""Workers of a pool: when one has found no work, when all have, and what shows that they work.

They never meet, so each comes and goes on its own. Exit code 0 says that there was no work left for
this worker. It is put back, its mark keeps the moment, and after that nobody is started but who was
interrupted since then and may have left work behind, until the job wishes for nodes anew, or its
user cancels one that works.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.model import (
    ENDED_STATES,
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
    """When this worker ended because it found no work; None if that is not how it last ended."""
    is_over = fragment.state is FragmentState.DONE and fragment.said is not Said.LEAVING
    if is_over and not fragment.is_leaving:
        return fragment.end or fragment.start
    return fragment.mark.idle


def idle_workers(job: MalleableJob, now: datetime) -> tuple[Fragment, ...]:
    """The workers of a pool that found no work, and know of all there is: neither has the job
    wished for nodes since, nor has its user cancelled a worker in the middle of its work.

    Of the same second, the least that Slurm tells apart, a cancel counts as later: else its work
    might be lost. A wish counts as earlier: else workers that wish and end would start for ever.
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
    """When a worker was last cancelled that may have left work behind: it has run, now or before,
    and did not end because there was none."""
    cancelled = (f for f in job.stirring if f.state is FragmentState.CANCELLED and not f.mark.idle)
    ends = (f.end for f in cancelled if f.restarts or ran_for(f))
    return max((end for end in ends if end is not None), default=None)


def to_be_started(ground: Ground, job: MalleableJob) -> tuple[Fragment, ...]:
    """Of the waiting fragments of a pool those that may find work: all of them, or once a worker
    has found none, those that were interrupted later."""
    idle = idle_workers(job, ground.now)
    waiting = tuple(f for f in job.fragments if f.state in WAITING_STATES)
    if not idle:
        return waiting
    newest, known = newest_of(idle), {f.id for f in idle}
    return tuple(f for f in waiting if f.id not in known and _moved_after(f, newest, ground.slurm))


def is_out_of_work(ground: Ground, job: MalleableJob) -> bool:
    """True if a worker of the pool has found no work, none runs or is about to, and none was
    interrupted since that moment.

    What has ended and is to be put back counts as interrupted, and what cannot be read may run.
    """
    idle = idle_workers(job, ground.now)
    if not idle or job.unread or job.cancelled == len(job.fragments):
        return False
    newest, known = newest_of(idle), {f.id for f in idle}
    others = [f for f in job.fragments if f.id not in known]
    back = ENDED_STATES - {FragmentState.CANCELLED}
    if any(f.state in LIVE_STATES or f.state in back for f in others):
        return False
    waiting = (f for f in others if f.state in WAITING_STATES)
    is_any_on = any(f.state in LIVE_STATES for f in idle)
    return not is_any_on and not any(_moved_after(f, newest, ground.slurm) for f in waiting)


def newest_of(idle: tuple[Fragment, ...]) -> datetime:
    """When the last of these workers found no work left. Raises ValueError if there is none."""
    return max(since for f in idle if (since := idle_since(f)) is not None)


def _moved_after(fragment: Fragment, moment: datetime, slurm: Slurm) -> bool:
    """True if it was requeued, put back or released later, or in the same second, the least that
    Slurm tells apart: a release that did not start must not make anybody forget the run that was
    interrupted before it."""
    moments = (requeue_of(fragment, slurm), fragment.mark.noticed, fragment.mark.released)
    return any(when is not None and when >= moment for when in moments)


def has_worked(ground: Ground, job: MalleableJob, failed: Optional[datetime]) -> bool:
    """True if a worker has got something done since `failed`: it says so, has run for a whole
    lease, or has found no work left."""
    lease = ground.lane(job).lease_of(job.request)
    ended = (idle_since(f) for f in job.fragments)
    if any(since is not None and (failed is None or since > failed) for since in ended):
        return True
    return job.trains or any(_has_had(f, lease, ground.now) for f in job.fragments)


def _has_had(fragment: Fragment, lease: timedelta, now: datetime) -> bool:
    """True if it has run for a lease; one that a hole cut short counts once it is over."""
    if fragment.state is FragmentState.TIMED_OUT and fragment.limit is not None:
        return ran_for(fragment) >= min(fragment.limit, lease)
    if fragment.state is not FragmentState.RUNNING or fragment.start is None:
        return False
    return now - fragment.start >= lease


def ran_for(fragment: Fragment) -> timedelta:
    """How long an ended run took; nothing if that is not known."""
    if fragment.start is None or fragment.end is None:
        return timedelta(0)
    return max(fragment.end - fragment.start, timedelta(0))


def outlived(ground: Ground, fragment: Fragment, job: MalleableJob) -> bool:
    """True if another worker runs, for failures.join_s at least and for longer than the dead one
    did: so the script works. Workers that die in turn do not excuse each other."""
    oldest = job.oldest_start
    if oldest is None:
        return False
    least, ran = timedelta(seconds=ground.settings.failures.join_s), ground.now - oldest
    return ran >= least and ran > ran_for(fragment)


def is_to_be_tried(ground: Ground, job: MalleableJob) -> bool:
    """True if a pool has failed and no worker has run for failures.join_s since: then one worker is
    tried, not hundreds."""
    if job.way.works_as_one or not job.failures:
        return False
    oldest = job.oldest_start
    least = timedelta(seconds=ground.settings.failures.join_s)
    return oldest is None or ground.now - oldest < least
