"""Finds trouble: why and until when a job waits, and fragments that hold nodes without use.

A clock that was set back puts Slurm's moments into the future.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple, Optional

from slurm_hooks.model import (
    NOT_LAUNCHED,
    NOT_MOVED,
    REFUSED,
    WAITING_STATES,
    Detail,
    Fragment,
    FragmentState,
    MalleableJob,
    Node,
    Reason,
    Resources,
    Slot,
    Slurm,
    Why,
)
from slurm_hooks.model.ends import SILENT, is_death, meets, requeue_of
from slurm_hooks.model.resources import NO_RESOURCES
from slurm_hooks.planning.ground import Ground

# Slurm makes a requeued job wait for as long as credentials live. A node refuses a credential that
# is not newer than the end of the job's last run there, in whole seconds ("Job credential revoked",
# 22.05). We shorten that wait, but not to zero.
REST = timedelta(seconds=3)
NOT_STARTED = "NotStarted"  # the obstacle of a release if Slurm names no other
_FIRST_REST = timedelta(seconds=30)
_LONGEST_REST = timedelta(hours=1)
_YOUNG = timedelta(minutes=10)


class Waits(NamedTuple):
    """The waits of a job, with their reasons. None where it does not have to wait.

    A job that is to run undisturbed waits with a `change`: it grows only if that pays. It waits
    with its `growth` after it shrank or failed. After a failure a pool waits with `others`: it gets
    at most 1 worker until that worker has lived for a while.
    """

    change: Optional[Reason] = None
    growth: Optional[Reason] = None
    others: Optional[Reason] = None


def is_within(now: datetime, since: Optional[datetime], span: timedelta) -> bool:
    """Tell whether `since` is less than `span` ago.

    A moment in the future counts as long ago. So no job waits until a clock that was set back has
    caught up.
    """
    return since is not None and timedelta(0) <= now - since < span


def _until(
    now: datetime, moments: Iterable[Optional[datetime]], span: timedelta
) -> Optional[datetime]:
    """The end of the last span that began at one of these moments. None if all are over."""
    return max((m + span for m in moments if m and is_within(now, m, span)), default=None)


def waits_of(ground: Ground, job: MalleableJob) -> Waits:
    return Waits(_undisturbed(ground, job), _snooze(ground, job), _trial(ground, job))


def _undisturbed(ground: Ground, job: MalleableJob) -> Optional[Reason]:
    span = job.request.min_run
    until = _until(ground.now, _changes(job, ground.slurm), span) if span and job.active else None
    if until is None:
        return None
    left_s = (until - ground.now).total_seconds()
    return Reason(Why.RESTING, Detail(min_run=span.total_seconds(), seconds=left_s, until=until))


def _changes(job: MalleableJob, slurm: Slurm) -> Iterator[Optional[datetime]]:
    """The moments when its fragments started and left."""
    for fragment in job.stirring:
        yield fragment.start if fragment.is_active else requeue_of(fragment, slurm)
        yield fragment.mark.noticed


def _snooze(ground: Ground, job: MalleableJob) -> Optional[Reason]:
    """A gang snoozes after a fragment has left. A pool does only after a failure.

    In a large pool workers come and go all the time.
    """
    moments: Iterable[Optional[datetime]] = (f.mark.noticed for f in job.fragments)
    if not job.way.works_as_one:
        moments = (a.since for f in job.stirring for a in f.mark.deaths if job.failures)
    span_s = ground.settings.plan.snooze_s
    until = _until(ground.now, moments, timedelta(seconds=span_s))
    return Reason(Why.RESTING, Detail(seconds=span_s, until=until)) if until else None


def _trial(ground: Ground, job: MalleableJob) -> Optional[Reason]:
    """Other workers of a pool that failed wait until a worker has run for failures.join_s."""
    if job.way.works_as_one or not job.failures:
        return None
    oldest, least_s = job.oldest_start, ground.settings.failures.join_s
    detail = Detail(failures=job.failures, seconds=least_s)
    if oldest is not None:
        detail["until"] = oldest + timedelta(seconds=least_s)
    is_over = oldest is not None and detail["until"] <= ground.now
    return None if is_over else Reason(Why.RESTING, detail)


def is_ready(ground: Ground, fragment: Fragment) -> bool:
    """Tell whether it may be released: held only by us, rested, and likely to start."""
    if fragment.state not in WAITING_STATES or fragment.is_on_hold:
        return False
    if fragment.state is FragmentState.SPECIAL and is_death(fragment):
        return False  # first its end is recorded
    ends = (fragment.mark.noticed, requeue_of(fragment, ground.slurm))
    is_rested = not any(is_within(ground.now, end, REST) for end in ends)
    return is_rested and in_vain(fragment, ground.now) is None


def in_vain(fragment: Fragment, now: datetime) -> Optional[Reason]:
    """The reason to wait after a release or a move that failed. None once it is tried again.

    Each wait is twice as long as the wait before. The first refusal causes no wait, since the node
    may have been taken between the tick's reading and the release. Nor does the first launch that
    failed, since only the next try shows on which node.
    """
    mark = fragment.mark
    tries = mark.vain - (mark.obstacle in (REFUSED, NOT_LAUNCHED))
    if tries <= 0:
        return None
    rest = min(_FIRST_REST * 2 ** min(tries - 1, 10), _LONGEST_REST)
    until = _until(now, [mark.released], rest)
    if until is None:
        return None
    if mark.obstacle == NOT_MOVED:
        return Reason(Why.TO_LANE, Detail(said=mark.request.lane, until=until))
    return Reason(Why.NOT_STARTED, Detail(count=mark.vain, said=mark.obstacle, until=until))


def is_in_the_way(fragment: Fragment, now: datetime) -> bool:
    """Tell whether a release in vain keeps its whole job from growing.

    In a pool it does so only if every worker would meet the same obstacle, not if a node was taken
    first. A fragment that Slurm does not move, or a node does not start, keeps no other from
    growing.
    """
    if fragment.mark.obstacle in (NOT_MOVED, NOT_LAUNCHED):
        return False
    is_shared = fragment.mark.request.way.works_as_one or fragment.mark.obstacle != NOT_STARTED
    return is_shared and in_vain(fragment, now) is not None


def idle_fragments(ground: Ground, job: MalleableJob) -> tuple[Reason, ...]:
    """Return a reason for each fragment that has run for failures.join_s and has joined no round.

    Workers of a pool never meet. A job in which no agent ever spoke keeps a single fragment, which
    trains alone.
    """
    if not meets(job):
        return ()
    silent = ((f, f.start) for f in job.active if f.said in SILENT)
    runs = ((f, (ground.now - start).total_seconds()) for f, start in silent if start)
    return tuple(
        Reason(
            Why.NOT_TRAINING,
            Detail(fragments=(f.id,), nodes=tuple(sorted(f.nodes)), seconds=ran_s, standing=f.said),
        )
        for f, ran_s in runs
        if ran_s >= ground.settings.failures.join_s
    )


def wrong_size(fragment: Fragment, node: Node, now: datetime) -> Optional[Reason]:
    """Say how the size of a fragment of slots on this node is wrong. None if it is right.

    Slurm has obeyed an update of a size in part without an error, and an operator may change a
    size. Such a fragment is put back. Otherwise it trains with fewer workers than planned, or holds
    resources that others could use.

    Its GPUs have to match exactly. It may have more processors and memory, since Slurm gives whole
    cores. It never has more than is used on its node, whatever Slurm says of the fragment. A share
    of the node is judged only while the run is young, since an administrator may change the node
    later.
    """
    slot, slots = fragment.mark.request.slot, fragment.mark.slots
    if slot is None or not slots or fragment.state is not FragmentState.RUNNING:
        return None
    if len(fragment.nodes) > 1:
        count, names = len(fragment.nodes), tuple(sorted(fragment.nodes))
        return Reason(Why.WRONG_SIZE, Detail(fragments=(fragment.id,), nodes=names, count=count))
    real = _at_most(fragment.asks, node.used) if node.used != NO_RESOURCES else fragment.asks
    is_young = is_within(now, fragment.start, _YOUNG)
    one = slot.on(node) if is_young else _without_shares(slot, node)
    asked, given = _differing(one.times(slots), real)
    if asked == given:
        return None
    detail = Detail(fragments=(fragment.id,), nodes=(node.name,), asked=asked, given=given)
    return Reason(Why.WRONG_SIZE, detail)


def _without_shares(slot: Slot, node: Node) -> Resources:
    return replace(slot.on(node), cpus=slot.cpus, memory_mib=slot.memory_mib)


def _at_most(given: Resources, used: Resources) -> Resources:
    gres = tuple((name, min(count, used.count(name))) for name, count in given.gres)
    cpus, memory = min(given.cpus, used.cpus), min(given.memory_mib, used.memory_mib)
    return Resources(cpus, memory, gres)


def _differing(asked: Resources, given: Resources) -> tuple[Resources, Resources]:
    """Return both without the resources that match."""
    kinds = [name for name, count in asked.gres if given.count(name) != count]
    lacks_cpus, lacks_memory = given.cpus < asked.cpus, given.memory_mib < asked.memory_mib

    def kept(resources: Resources) -> Resources:
        gres = tuple((name, resources.count(name)) for name in kinds)
        return Resources(resources.cpus * lacks_cpus, resources.memory_mib * lacks_memory, gres)

    return kept(asked), kept(given)
