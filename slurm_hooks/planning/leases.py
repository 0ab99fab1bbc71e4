"""Leases of running fragments: renewed while their hole stays open, cut when it closes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.model import Fragment, FragmentId, Intent, MalleableJob, Mark, NodeState, Verb, Why
from slurm_hooks.planning.gates import Presence, is_ahead, why_to_leave
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.holes import MINUTE
from slurm_hooks.planning.survey import Survey

_SLACK = timedelta(seconds=60)  # from a release to its start. Time limits are whole minutes
_MOMENT = timedelta(seconds=10)  # for a notice to arrive. Slurm refuses an end in the past


@dataclass(frozen=True)
class Stay:
    """Whether a running fragment can stay, until when at the latest, and whether to renew it."""

    latest: Optional[datetime]
    leaves: Optional[Why] = None
    is_known: bool = True


def may_stay(survey: Survey, fragment: Fragment, is_past: bool = False) -> Stay:
    """Decide whether a fragment can stay.

    It leaves when a gate closes, when Slurm preempts it and leaves it a grace, or in time before
    its hole closes. With `is_past` it stays past planned starts, so that only reservations close
    its hole. Slurm deals with nodes that are down or in an unknown state. Leases there are not
    renewed.
    """
    ground, holes = survey.ground, survey.holes.of(fragment)
    closed = why_to_leave(Presence(ground, survey.holes, fragment, holes))
    ends = [hole.wall if is_past else hole.latest for hole in holes]
    limit = _limit(ground, fragment)
    latest = min((end for end in (*ends, limit) if end is not None), default=None)
    if closed:
        return Stay(latest, closed)
    is_known = bool(holes) and all(h.node.state is not NodeState.UNKNOWN for h in holes)
    if is_known and _is_in_grace(ground, fragment, latest):
        return Stay(latest, Why.GRACE)
    if latest is None or fragment.start is None:
        return Stay(latest, is_known=is_known)
    lead = ground.lane_of(fragment).notice + ground.until_next
    if latest - ground.now > lead:
        return Stay(latest, is_known=is_known)
    return Stay(latest, Why.LANE_LIMIT if latest == limit else Why.HOLE_CLOSES, is_known)


def _limit(ground: Ground, fragment: Fragment) -> Optional[datetime]:
    """The moment when it will have run for as long as its partition lets any job run.

    Slurm would let us renew its lease beyond that.
    """
    most = ground.lane_of(fragment).terms.most
    return None if most is None or fragment.start is None else fragment.start + most


def _is_in_grace(ground: Ground, fragment: Fragment, latest: Optional[datetime]) -> bool:
    """Tell whether Slurm preempts it and has cut its lease to its grace.

    Then its lease is nearly over, long after its renewal was due, and shorter than its time limit.
    Processes of a batch script do not learn of the grace, and no lease can be changed then (22.05).
    """
    lane, start, end = ground.lane_of(fragment), fragment.start, fragment.end
    if not lane.terms.grace or start is None or end is None or fragment.limit is None:
        return False
    if end - ground.now > lane.notice or start + fragment.limit - end <= _SLACK:
        return False
    return latest is None or latest - end > _SLACK + MINUTE


def renewal(ground: Ground, fragment: Fragment, job: MalleableJob, stay: Stay) -> Optional[Intent]:
    """The new end of the lease of a fragment that stays. None if the present end is right.

    It is cut to the hole if it overruns the hole, and to the longest allowed lease, since a restart
    by Slurm gets all that was ever added. It is extended once half of it is used.
    """
    length = ground.lane(job).lease_of(job.request)
    wanted = ground.now + length
    end = wanted if stay.latest is None else min(wanted, stay.latest)
    if fragment.end is None:
        return Intent(fragment.id, Why.LEASE_LONG, end=end)
    if stay.latest is not None and fragment.end > stay.latest:
        return Intent(fragment.id, Why.HOLE_CLOSES, end=end)
    if fragment.end > wanted + _SLACK:
        return Intent(fragment.id, Why.LEASE_LONG, end=end)
    is_early = fragment.end - ground.now > length / 2
    if is_early or end <= fragment.end or not stay.is_known:
        return None
    return Intent(fragment.id, Why.HOLE_OPEN, end=end)


def cut(ground: Ground, fragment: Fragment, job: MalleableJob, stay: Stay) -> Optional[Intent]:
    """An earlier end for the lease of a fragment that is asked to leave, if its lease is too long.

    It may ignore the notice, and this tick may be the last for hours.
    """
    lane = ground.lane(job)
    length = lane.lease_of(job.request)
    ends = [ground.now + length] if stay.latest is None else [ground.now + length, stay.latest]
    soonest = ground.now + lane.notice + _MOMENT
    end = max(min(ends), soonest)
    if is_ahead(ground, fragment):
        return None
    if fragment.end is not None and fragment.end <= end + _SLACK:
        return None
    return Intent(fragment.id, Why.HOLE_CLOSES if stay.latest else Why.LEASE_LONG, end=end)


def notice(name: FragmentId, mark: Mark, cause: Why, now: datetime) -> Intent:
    """Ask a fragment with this mark to leave."""
    return Intent(name, cause, Verb.NOTICE, mark=replace(mark, noticed=now))
