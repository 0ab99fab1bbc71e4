"""Leases of fragments that run: renewed while their hole stays open, cut when it closes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.core.classes import Ground
from slurm_hooks.core.holes import MINUTE
from slurm_hooks.model import Action, Cause, Fragment, MalleableJob, NodeState, Notice, Renew
from slurm_hooks.settings import Lease


@dataclass(frozen=True)
class Stay:
    """Whether a running fragment can stay, and until when at the latest."""

    latest: Optional[datetime]
    leaves: Optional[Cause] = None


def may_stay(fragment: Fragment, ground: Ground, lease: Lease) -> Stay:
    """A fragment goes when its node leaves service, or in time before its hole closes.

    Nodes in a state nobody knows, or down, are left to Slurm.
    """
    known = [ground.nodes[name] for name in sorted(fragment.nodes) if name in ground.nodes]
    if any(node.state is NodeState.LEAVING for node in known):
        return Stay(None, Cause.NODE_LEAVES)
    ends = [ground.latest[node.name] for node in known]
    latest = min((end for end in ends if end is not None), default=None)
    if latest is None or fragment.start is None:
        return Stay(latest)
    last_end = fragment.start + (latest - fragment.start) // MINUTE * MINUTE
    lead = timedelta(seconds=lease.notice_s) + ground.until_next
    goes = last_end - ground.now <= lead
    return Stay(latest, Cause.HOLE_CLOSES if goes else None)


def renewal(
    fragment: Fragment, job: MalleableJob, stay: Stay, ground: Ground, lease: Lease
) -> Optional[Renew]:
    """The new time limit of a fragment that stays, or None if the present one is right.

    Cut to the hole if it overruns it, as one without an end does; extended once half of the lease
    is used.
    """
    if fragment.start is None:
        return None
    length = min(job.request.lease, timedelta(seconds=lease.length_s))
    wanted = ground.now + length
    end = wanted if stay.latest is None else min(wanted, stay.latest)
    limit = (end - fragment.start) // MINUTE * MINUTE
    if fragment.end is None:
        return Renew(fragment.id, limit)
    if stay.latest is not None and fragment.end > stay.latest:
        return Renew(fragment.id, limit, Cause.HOLE_CLOSES)
    if fragment.end - ground.now > length / 2:
        return None
    now_limit = fragment.end - fragment.start
    if limit <= now_limit:  # one minute more, where leases are too short for whole minutes
        limit = now_limit + MINUTE
    fits = stay.latest is None or fragment.start + limit <= stay.latest
    return Renew(fragment.id, limit) if fits else None


def notice(fragment: Fragment, cause: Cause, now: datetime) -> Action:
    """Tell a fragment to leave."""
    return Notice(fragment.id, replace(fragment.mark, noticed=now), cause)
