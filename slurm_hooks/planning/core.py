"""Fragments that wait in the ordinary queue, in the partition and with the QOS of their user.

A core is charged, queued and limited as any job of its user. So it has no lease, no notice, and no
hold while it runs. It is released once. After a death or a preemption it waits for its turn again.
A pool's worker that found no work waits again once there is work. After its time, a core becomes a
fragment like the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import Optional

from slurm_hooks.model import (
    BACK_STATES,
    NOT_LAUNCHED,
    NOT_MOVED,
    WAITING_STATES,
    Detail,
    Fragment,
    FragmentState,
    Intent,
    MalleableJob,
    Reason,
    Verb,
    Why,
)
from slurm_hooks.model.ends import is_death, requeue_of
from slurm_hooks.planning.failures import after_death, put_back
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.trouble import in_vain, is_ready, is_within
from slurm_hooks.planning.workers import idle_since, to_be_started

_EARLY = timedelta(seconds=60)


def step_of_core(ground: Ground, job: MalleableJob, fragment: Fragment) -> Optional[Intent]:
    """The next step for a core fragment that is not over, which is due only after an end.

    Slurm itself requeues a preempted core, and a core whose node failed, with its place in the
    queue.
    """
    is_back = fragment.state in (*WAITING_STATES, FragmentState.PENDING)
    if is_death(fragment) and (is_back or fragment.state in BACK_STATES):
        mark = after_death(ground, job, fragment)
        if is_back:
            return Intent(fragment.id, Why.DIED, mark=mark, is_held=not fragment.is_on_hold)
        return put_back(fragment, Why.DIED, mark)
    if fragment.state is FragmentState.RUNNING:
        return _noted_start(fragment)
    mark = replace(fragment.mark, noticed=ground.now)
    if fragment.state is FragmentState.DONE and job.way.zero_is_idle:
        return put_back(fragment, Why.NO_WORK, replace(mark, idle=idle_since(fragment)))
    spent = replace(mark, is_spent=True)
    if fragment.state in BACK_STATES:
        return put_back(fragment, Why.CORE_OVER, spent)
    if _is_time_over(ground, fragment, job):
        is_held = fragment.state is FragmentState.PENDING
        return Intent(fragment.id, Why.CORE_OVER, mark=spent, is_held=is_held)
    return None


def _noted_start(fragment: Fragment) -> Optional[Intent]:
    """Note the start of a run, since Slurm forgets it at a requeue.

    No tick asks a core to leave, so a note of that speaks of the last run.
    """
    mark = replace(fragment.mark, released=fragment.start, run=fragment.restarts, noticed=None)
    is_news = fragment.start is not None and mark != fragment.mark
    return Intent(fragment.id, Why.NOTED, mark=mark) if is_news else None


def _is_time_over(ground: Ground, fragment: Fragment, job: MalleableJob) -> bool:
    """Tell whether its last run was put back at the end of its time.

    Agents leave before Slurm ends them. The notice and the other leavers decide how early.
    """
    back, since = requeue_of(fragment, ground.slurm), fragment.mark.released
    if back is None or since is None or fragment.limit is None or not fragment.has_run:
        return False
    early = min(ground.lane(job).notice + _EARLY, fragment.limit / 2)
    return not fragment.is_leaving and back - since >= fragment.limit - early


def to_queue(ground: Ground, job: MalleableJob) -> Iterator[Intent]:
    """Release the core fragments that have no place in the ordinary queue yet."""
    waiting = to_be_started(ground, job) if job.way.zero_is_idle else job.core
    held = [f for f in waiting if f.is_core and is_ready(ground, f)]
    is_kept = any(f.depends or f.mark.is_on_hold for f in job.core)
    span = timedelta(seconds=ground.settings.failures.avoid_s)
    for fragment in () if is_kept else held:
        is_unfit = _is_unfit(fragment) and is_within(ground.now, fragment.mark.released, span)
        if is_unfit:
            continue
        mark = replace(fragment.mark, vain=0)
        if fragment.is_not_launched:
            mark = fragment.mark.in_vain(ground.now, NOT_LAUNCHED)
        mark = replace(mark, released=ground.now, noticed=None, idle=None, run=fragment.restarts)
        mark = replace(mark, slots=job.request.unit if job.request.slot else 0)
        yield Intent(fragment.id, Why.CORE, Verb.QUEUE, mark=mark)


def _is_unfit(fragment: Fragment) -> bool:
    """Tell whether Slurm holds it because no node of its partition has all that it asks for."""
    return fragment.state is FragmentState.HELD and fragment.reason == "BadConstraints"


def to_move(ground: Ground, job: MalleableJob) -> Iterator[Intent]:
    """Move waiting fragments to their lane unless an operator holds them. They start only there.

    After a refused move a fragment rests, each time for longer.
    """
    site, request = ground.settings.site, job.request
    may_move = request.lane and job.job_id not in ground.seen.without_qos
    for fragment in job.fragments if may_move else ():
        is_kept = fragment.is_on_hold or fragment.mark.is_on_hold or in_vain(fragment, ground.now)
        if ground.is_astray(fragment) and fragment.state in WAITING_STATES and not is_kept:
            yield Intent(
                fragment.id,
                Why.TO_LANE,
                limit=request.lease,
                lane=request.lane,
                qos=site.qos,
                account=site.account,
            )


def kept_out(ground: Ground, job: MalleableJob) -> Iterator[Reason]:
    """Say why the job's other fragments do not move to the lane."""
    if job.job_id in ground.seen.without_qos:
        names = ",".join(ground.settings.site.qos_of(job.request.slot is not None))
        yield Reason(Why.TO_LANE, Detail(user=job.user, said=names))
    astray = (f for f in job.stirring if ground.is_astray(f) and f.mark.obstacle == NOT_MOVED)
    yield from islice(filter(None, (in_vain(f, ground.now) for f in astray)), 1)


def has_ended(job: MalleableJob) -> bool:
    """Tell whether the job ends with its core, and the core's time is over."""
    is_left = any(f.state is not FragmentState.CANCELLED for f in job.core)
    return job.request.ends_all and any(f.mark.is_spent for f in job.fragments) and not is_left


def standing(job: MalleableJob) -> Iterator[Reason]:
    """The core's state: its place in the queue, with Slurm's own words, or its nodes."""
    waiting = [f for f in job.core if f.state is FragmentState.PENDING]
    running = [f for f in job.core if f.state is FragmentState.RUNNING]
    for fragment in waiting:
        detail = Detail(fragments=(fragment.id,), said=fragment.reason)
        if fragment.start is not None:
            detail["at"] = fragment.start
        yield Reason(Why.CORE, detail)
    for fragment in filter(_is_unfit, job.core):
        yield Reason(Why.CORE, Detail(fragments=(fragment.id,), state=fragment.state))
    if running:
        nodes = tuple(sorted({n for f in running for n in f.nodes}))
        detail = Detail(nodes=nodes, count=sum(f.size for f in running))
        ends = [f.end for f in running if f.end is not None]
        if ends:
            detail["until"] = max(ends)
        yield Reason(Why.CORE, detail)
