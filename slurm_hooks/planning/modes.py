"""Decides how much a tick may do: only watch, serve all jobs, or start no job.

The settings and the switch say so at each tick, whatever Slurm would allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from heapq import nsmallest
from typing import Optional

from slurm_hooks.model import Detail, Level, Off, Reason, Snapshot, Why
from slurm_hooks.planning.ground import Ground

MOST_NAMED = 5


@dataclass(frozen=True)
class Mandate:
    """The rights of a tick.

    All malleable jobs together may be given `ceiling` nodes (None: no limit). Nodes beyond
    `most_kept` are taken back. The two are equal unless the ceiling is a share of partitions and
    some are down. While nodes are `registering`, no fragment starts. A slurmctld that lost its last
    writes would start jobs there that already run, and then drain the node. `no_growth` says since
    when, and why, the site wants no job to grow.
    """

    level: Level
    off: Optional[Off] = None
    ceiling: Optional[int] = None
    most_kept: Optional[int] = None
    registering: frozenset[str] = frozenset()
    no_growth: Optional[Reason] = None

    @cached_property
    def waits(self) -> tuple[Reason, ...]:
        """The reasons why no fragment starts now, and no job makes room. Empty if some may."""
        named = _named(self.registering)
        registering = (Reason(Why.REGISTERING, named),) if self.registering else ()
        return registering if self.no_growth is None else (*registering, self.no_growth)

    @property
    def bar(self) -> Optional[Reason]:
        """Say why no fragment of any job may be on a node. None if some may."""
        return None if self.off is None else why_off(self.off)

    def notes(self, snapshot: Snapshot) -> tuple[Reason, ...]:
        """The notes for every reader of a plan. Empty in the ordinary state."""
        if self.off is not None:
            return (why_off(self.off),)
        if self.level is not Level.OBSERVE:
            return self.waits
        running = sum(len(job.active) for job in snapshot.jobs)
        risk = (Reason(Why.NOT_RENEWED, Detail(count=running)),) if running else ()
        return (Reason(Why.OBSERVED), *risk, *self.waits)


def _named(names: frozenset[str]) -> Detail:
    detail, rest = Detail(nodes=tuple(nsmallest(MOST_NAMED, names))), len(names) - MOST_NAMED
    if rest > 0:
        detail["more"] = rest
    return detail


def mandate_of(ground: Ground) -> Mandate:
    """The mandate of a tick. The switch wins over the settings."""
    seen, settings, mode = ground.seen, ground.settings, ground.settings.mode
    level = Level.OFF if seen.off is not None else Level(mode.level)
    ceiling, most_kept = _ceiling(ground)
    ours = (n.name for n in seen.nodes if not n.partitions.isdisjoint(settings.site.partitions))
    registering = seen.registering.intersection(ours) if seen.registering else frozenset()
    calm = None if seen.no_growth is None else why_no_growth(seen.no_growth, ground.now)
    return Mandate(level, seen.off, ceiling, most_kept, registering, calm)


def why_off(off: Off) -> Reason:
    """Say since when malleable jobs are switched off, and why."""
    detail = Detail(since=off.since)
    if off.reason:
        detail["said"] = off.reason
    return Reason(Why.OFF, detail)


def why_no_growth(calm: Off, now: datetime) -> Reason:
    """Say since when the site wants no job to grow, for how long by now, and why."""
    detail = Detail(since=calm.since, seconds=(now - calm.since).total_seconds())
    if calm.reason:
        detail["said"] = calm.reason
    return Reason(Why.NO_GROWTH, detail)


def _ceiling(ground: Ground) -> tuple[Optional[int], Optional[int]]:
    """The lower of the two ceilings, and the most that may be kept.

    A partition that is down has no nodes here. Its share must not make fragments leave, but an
    absolute ceiling does.
    """
    mode, partitions = ground.settings.mode, ground.settings.site.partitions
    absolute = mode.max_nodes or None
    if mode.max_share >= 1:
        return absolute, absolute
    ours = [node for node in ground.seen.nodes if not node.partitions.isdisjoint(partitions)]
    share = int(mode.max_share * len(ours) + 1e-9)
    ceiling = share if absolute is None else min(share, absolute)
    is_whole = all(any(p in node.partitions for node in ours) for p in partitions)
    return ceiling, ceiling if is_whole else absolute
