"""Finds the holes: how long each node is free of claims by others, and which lease fits inside.

Only reservations and planned starts count, since Slurm publishes them. Preemption handles unplanned
ends. A job that waits in the lane cannot preempt, so its planned start binds like a reservation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.model import Hole, HoleEnd, Snapshot
from slurm_hooks.planning.ground import Ground

MINUTE = timedelta(minutes=1)  # Slurm keeps time limits in whole minutes
START = timedelta(seconds=5)  # from release to start: 0.9 to 1.8 s were seen (22.05.8)


def holes_of(snapshot: Snapshot) -> dict[str, Hole]:
    """The hole of each node, busy or not. It ends at the earliest claim by others.

    A reservation that has begun and not ended closes its nodes now.
    """
    holes = {node.name: Hole(node.name) for node in snapshot.nodes}
    _claim_firmly(holes, snapshot)
    for planned in snapshot.planned:
        if planned.preempts:
            _claim(holes, planned.nodes, (planned.start, HoleEnd.PLANNED, f"job {planned.job_id}"))
    return holes


def _claim_firmly(holes: dict[str, Hole], snapshot: Snapshot) -> None:
    for planned in snapshot.planned:
        if not planned.preempts:
            _claim(holes, planned.nodes, (planned.start, HoleEnd.IN_LANE, f"job {planned.job_id}"))
    for reservation in snapshot.reservations:
        if reservation.end > snapshot.now:
            claim = (reservation.start, HoleEnd.RESERVATION, reservation.name)
            _claim(holes, reservation.nodes, claim)


def _walls_of(snapshot: Snapshot, holes: Mapping[str, Hole]) -> dict[str, Hole]:
    """The holes as claims end them for which Slurm does not preempt."""
    is_planned = HoleEnd.PLANNED
    walls = {n: Hole(n) if hole.source is is_planned else hole for n, hole in holes.items()}
    _claim_firmly(walls, snapshot)
    return walls


def _claim(
    holes: dict[str, Hole], nodes: frozenset[str], claim: tuple[datetime, HoleEnd, str]
) -> None:
    start, source, by = claim
    for name in nodes & holes.keys():
        end = holes[name].end
        if end is None or start < end:
            holes[name] = Hole(name, start, source, by)


def latest_end(ground: Ground, hole: Hole) -> Optional[datetime]:
    """The last moment at which a lease in this hole may end. None if the node has no claim.

    slurmctld enforces limits late (every half minute: the margin) and kills late (KillWait).
    """
    if hole.end is None:
        return None
    margin = timedelta(seconds=ground.settings.lease.margin_s)
    return hole.end - ground.slurm.kill_wait - margin


@dataclass(frozen=True)
class Ends:
    """The last moments for leases, by node. None: no limit.

    `latest` is for fragments that leave before every claim. A fragment that stays until Slurm takes
    its node ends by `walls`, the reservations and the planned starts of jobs in the lane. Its new
    lease ends by `until`, since Slurm starts no job that would run into a planned start. Renewals
    go beyond that.
    """

    latest: Mapping[str, Optional[datetime]]
    walls: Mapping[str, Optional[datetime]]
    until: Mapping[str, Optional[datetime]]


def ends_of(ground: Ground, holes: Mapping[str, Hole]) -> Ends:
    """The last moments for leases in these holes."""
    walls = {n: latest_end(ground, hole) for n, hole in _walls_of(ground.seen, holes).items()}
    return Ends(
        latest={n: latest_end(ground, hole) for n, hole in holes.items()},
        walls=walls,
        until={n: _until(hole, walls[n]) for n, hole in holes.items()},
    )


def _until(hole: Hole, wall: Optional[datetime]) -> Optional[datetime]:
    if hole.source is not HoleEnd.PLANNED or hole.end is None:
        return wall
    return hole.end if wall is None else min(hole.end, wall)


def lease_within(now: datetime, latest: Optional[datetime], longest: timedelta) -> timedelta:
    """The longest lease in whole minutes for a start about now. Zero if no minute fits."""
    room = longest if latest is None else min(longest, latest - now - START)
    return max(room // MINUTE, 0) * MINUTE
