"""Finds the holes: the free part of each node, for how long, and who is on the rest.

Only reservations and planned starts end a hole, since Slurm publishes them. Preemption handles
unplanned ends. A job that waits in the lane cannot preempt, so its planned start binds like a
reservation.

When a part of a node is taken, Slurm puts the next small job of others elsewhere. An idle node is
then no longer whole for the job after that. So malleable jobs take no part of a shared node while a
node is idle that the others could use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from heapq import nsmallest
from typing import Optional

from slurm_hooks.model import (
    LIVE_STATES,
    Claim,
    ClaimKind,
    Fragment,
    FragmentState,
    Node,
    NodeState,
    Resources,
    Snapshot,
)
from slurm_hooks.model.cluster import UNCLAIMED
from slurm_hooks.model.resources import NO_RESOURCES
from slurm_hooks.planning.ground import Ground

MINUTE = timedelta(minutes=1)  # Slurm keeps time limits in whole minutes
_Users = tuple[str, bool]
START = timedelta(seconds=5)  # from release to start: 0.9 to 1.8 s were seen (22.05.8)


def claims_of(snapshot: Snapshot) -> dict[str, Claim]:
    """The earliest claim of others on each node that has any.

    A reservation that has begun and not ended claims its nodes now.
    """
    claims = _firm_claims(snapshot)
    for planned in snapshot.planned:
        if planned.preempts:
            claim = Claim(planned.start, ClaimKind.PLANNED, f"job {planned.job_id}")
            _add(claims, planned.nodes, claim)
    return claims


def idle_claims(snapshot: Snapshot) -> dict[str, Claim]:
    """The earliest claim on each idle node."""
    claims = claims_of(snapshot)
    idle = (node.name for node in snapshot.nodes if node.state is NodeState.FREE)
    return {name: claims.get(name, UNCLAIMED) for name in idle}


def _firm_claims(snapshot: Snapshot) -> dict[str, Claim]:
    """The earliest claims for which Slurm does not preempt."""
    claims: dict[str, Claim] = {}
    for planned in snapshot.planned:
        if not planned.preempts:
            claim = Claim(planned.start, ClaimKind.IN_LANE, f"job {planned.job_id}")
            _add(claims, planned.nodes, claim)
    for booked in snapshot.reservations:
        if booked.end > snapshot.now:
            _add(claims, booked.nodes, Claim(booked.start, ClaimKind.RESERVATION, booked.name))
    return claims


def _add(claims: dict[str, Claim], nodes: frozenset[str], claim: Claim) -> None:
    assert claim.start is not None
    for name in nodes:
        known = claims.get(name, UNCLAIMED).start
        if known is None or claim.start < known:
            claims[name] = claim


def latest_end(ground: Ground, claim: Claim) -> Optional[datetime]:
    """The last moment at which a lease before this claim may end. None without a claim.

    slurmctld enforces limits late (every half minute: the margin) and kills late (KillWait).
    """
    if claim.start is None:
        return None
    margin = timedelta(seconds=ground.settings.lease.margin_s)
    return claim.start - ground.slurm.kill_wait - margin


@dataclass(frozen=True, eq=False)
class Hole:
    """A node, until when malleable jobs may use it, and the fragments that are `here` or coming.

    A core has its part of the node as jobs of others have theirs.
    The `claim` of others ends it. The other moments are the last for leases. None: no limit.
    `latest` is for fragments that leave before every claim. A fragment that stays until Slurm takes
    its node ends by the `wall`, a reservation or a planned start of a job in the lane. Its new
    lease ends by `until`, since Slurm starts no job that would run into a planned start. Renewals
    go beyond that.
    """

    node: Node
    claim: Claim
    latest: Optional[datetime]
    wall: Optional[datetime]
    until: Optional[datetime]
    here: tuple[Fragment, ...] = ()

    @property
    def is_idle(self) -> bool:
        """True if nobody is on the node or on the way, so that a job may have all of it."""
        return self.node.state is NodeState.FREE and not self.here

    @property
    def is_whole(self) -> bool:
        """True if a job of whole nodes has the node, or could have it."""
        return self.is_idle or any(f.mark.request.slot is None for f in self.here)

    @cached_property
    def left(self) -> Resources:
        """The free part once all fragments on their way have started."""
        left = self.node.free
        for fragment in self.here:
            if fragment.mark.request.slot is None:
                return NO_RESOURCES
            if fragment.state is not FragmentState.RUNNING:
                left -= fragment.asks
        return left

    @cached_property
    def ours(self) -> Resources:
        """The part that running fragments of jobs that count slots have in holes."""
        running = (f.asks for f in self._lent if f.state is FragmentState.RUNNING)
        return sum(running, start=NO_RESOURCES)

    @property
    def _lent(self) -> Iterator[Fragment]:
        return (fragment for fragment in self.here if not fragment.is_core)

    @property
    def left_without_ours(self) -> Resources:
        """The part that would be free if all our running fragments had left."""
        return self.node.total - (self.node.used - self.ours)

    @cached_property
    def is_shared(self) -> bool:
        """True if others have a processor or a GPU of it, as far as is known.

        While a fragment ends there, all of the node counts as used.
        """
        if self.node.state is NodeState.FREE or any(map(_hides_others, self.here)):
            return False
        used = self.node.used
        return used.cpus > self.ours.cpus or used.gpus > self.ours.gpus

    @property
    def gangs(self) -> frozenset[int]:
        """The gangs that have a fragment there. Each has at most a single fragment on a node."""
        ours = (f.id.job_id for f in self._lent if f.mark.request.way.works_as_one)
        return frozenset(ours)


def _hides_others(fragment: Fragment) -> bool:
    return fragment.mark.request.slot is None or fragment.state is FragmentState.ENDING


class Holes(dict[str, Hole]):
    """The hole of each node, busy or not, by name."""

    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self._ground = ground
        claims, firm = claims_of(ground.seen), _firm_claims(ground.seen)
        here: dict[str, list[Fragment]] = {}
        for fragment in (f for job in ground.seen.jobs for f in job.stirring):
            for name in fragment.nodes if fragment.state in LIVE_STATES else ():
                here.setdefault(name, []).append(fragment)
        for node in ground.seen.nodes:
            claim = claims.get(node.name, UNCLAIMED)
            latest = wall = until = None
            if claim is not UNCLAIMED:
                latest = latest_end(ground, claim)
                wall = latest_end(ground, firm.get(node.name, UNCLAIMED))
                until = _until(claim, wall)
            on_it = tuple(here.get(node.name, ()))
            self[node.name] = Hole(node, claim, latest, wall, until, on_it)

    def of(self, fragment: Fragment) -> list[Hole]:
        """The holes that the fragment is in, by name. A node may have left slurm.conf."""
        return [self[name] for name in sorted(fragment.nodes) if name in self]

    def lane(self, hole: Hole) -> str:
        """The partition for a part of this node, or the QOS where that decides.

        Slurm takes fragments of the lower tier or QOS first. Those are the fragments on shared
        nodes, so that nodes which only malleable jobs use stay whole.
        """
        site = self._ground.settings.site
        whole = site.partitions[0]
        is_ours = (site.parts_qos or whole in hole.node.partitions) and not hole.is_shared
        return (site.qos if site.parts_qos else whole) if is_ours else site.part_nodes

    def idle_beside(self, shared: Hole, given: Collection[str] = ()) -> str:
        """An idle node that the users of this shared node could have, and that we do not take.

        Empty if there is no such node.
        """
        rows = (self._idle.get(users, ()) for users in self._users(shared.node))
        return min((name for row in rows for name in row if name not in given), default="")

    def is_in_the_way(self, fragment: Fragment, hole: Hole) -> bool:
        """Tell whether the fragment scatters jobs of others.

        It does on a shared node while a node stays idle. It also does on a node that others have
        left, where Slurm would take it before fragments on shared nodes.
        """
        if not hole.is_shared:
            part_nodes = self._ground.settings.site.part_nodes
            is_part = bool(part_nodes) and part_nodes in (fragment.mark.qos, fragment.lane)
            return is_part and self.lane(hole) != part_nodes
        return not self._left_idle.isdisjoint(self._users(hole.node))

    @cached_property
    def _left_idle(self) -> frozenset[_Users]:
        """The users for whom a node has been idle since the last tick or longer."""
        since = self._ground.now - self._ground.until_next
        ends = {users: (self[n].node.idle_since for n in row) for users, row in self._idle.items()}
        return frozenset(u for u, row in ends.items() if any(e and e <= since for e in row))

    @cached_property
    def _idle(self) -> dict[_Users, list[str]]:
        """Idle nodes beyond the headroom by the users whom they serve, open for long enough.

        A node with GPUs also serves in place of a node without GPUs.
        """
        by_users: dict[_Users, list[str]] = {}
        for name, hole in self.items():
            if hole.is_idle and self._is_open(hole) and name not in self.headroom:
                for lane, has_gpus in self._users(hole.node):
                    for gpus in {False, has_gpus}:
                        by_users.setdefault((lane, gpus), []).append(name)
        return by_users

    @cached_property
    def headroom(self) -> frozenset[str]:
        """The idle nodes of our partitions that are left to others, as many as the site wants.

        Nodes with GPUs come first, since they serve every job. The next are the shortest holes that
        are long enough.
        """
        wanted, ours = self._ground.settings.plan.headroom_nodes, self._ground.settings.site
        idle = (hole for hole in self.values() if wanted and hole.is_idle and self._is_open(hole))
        mine = (hole for hole in idle if not hole.node.partitions.isdisjoint(ours.partitions))
        return frozenset(hole.node.name for hole in nsmallest(wanted, mine, key=_as_headroom))

    def _is_open(self, hole: Hole) -> bool:
        """Tell whether the hole is as long as any has to be."""
        start = hole.claim.start
        return start is None or start >= self._ground.now + self._ground.shortest_hole

    def _users(self, node: Node) -> list[_Users]:
        """The users of a node: the partitions of other jobs, each with whether it has GPUs.

        Where QOS decide, other jobs may use our partitions too.
        """
        site, has_gpus = self._ground.settings.site, bool(node.total.gpus)
        ours = () if site.parts_qos else site.partitions
        return [(lane, has_gpus) for lane in node.partitions.difference(ours)]


def _as_headroom(hole: Hole) -> tuple[bool, bool, float, str]:
    start = hole.claim.start
    seconds = 0.0 if start is None else start.timestamp()
    return (not hole.node.total.gpus, start is None, seconds, hole.node.name)


def _until(claim: Claim, wall: Optional[datetime]) -> Optional[datetime]:
    if claim.kind is not ClaimKind.PLANNED or claim.start is None:
        return wall
    return claim.start if wall is None else min(claim.start, wall)


def lease_within(now: datetime, latest: Optional[datetime], longest: timedelta) -> timedelta:
    """The longest lease in whole minutes for a start about now. Zero if no minute fits."""
    room = longest if latest is None else min(longest, latest - now - START)
    return max(room // MINUTE, 0) * MINUTE
