"""What a tick may do: nothing new, only watch, only for a canary, or all; and how much in all.

Settings and the switch say so at each tick, whatever Slurm would allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from heapq import nsmallest
from typing import Optional

from slurm_hooks.model import Detail, Level, MalleableJob, Off, Reason, Snapshot, Why
from slurm_hooks.planning.ground import Ground
from slurm_hooks.settings.values import Mode

MOST_NAMED = 5


@dataclass(frozen=True)
class Ceiling:
    """The most nodes that the jobs of one user, or of one account, may have together."""

    nodes: int
    user: Optional[str] = None
    account: Optional[str] = None

    @property
    def detail(self) -> Detail:
        """How many nodes, and whose ceiling it is."""
        if self.user is not None:
            return Detail(ceiling=self.nodes, user=self.user)
        return Detail(ceiling=self.nodes, account=self.account or "(none)")


@dataclass(frozen=True)
class Mandate:
    """What one tick may do. `nodes` are those of the canary, empty if it has any.

    `ceiling` is the most nodes that all malleable jobs may be given together (None: no limit).
    What they have beyond `most_kept` is taken back: the same, unless the ceiling is a share of
    partitions that are not all up. While nodes are `registering` nothing starts: a slurmctld whose
    last writes were lost would start what runs there already, and drain the node for that.
    `no_growth` says since when and why the site wants no job to grow.
    """

    level: Level
    mode: Mode
    nodes: frozenset[str] = frozenset()
    off: Optional[Off] = None
    ceiling: Optional[int] = None
    most_kept: Optional[int] = None
    registering: frozenset[str] = frozenset()
    no_growth: Optional[Reason] = None

    @cached_property
    def waits(self) -> tuple[Reason, ...]:
        """Why nothing starts now; empty if something may. Then no job makes room for another."""
        named = _named(self.registering)
        registering = (Reason(Why.REGISTERING, named),) if self.registering else ()
        return registering if self.no_growth is None else (*registering, self.no_growth)

    def bars_job(self, job: MalleableJob) -> Optional[Reason]:
        """Why no fragment of the job may be on a node; None if some may."""
        if self.off is not None:
            return why_off(self.off)
        if self.level is not Level.CANARY or is_in_canary(self.mode, job.user, job.account):
            return None
        detail = Detail()
        if self.mode.users:
            detail["users"] = tuple(self.mode.users)
        if self.mode.accounts:
            detail["accounts"] = tuple(self.mode.accounts)
        return Reason(Why.CANARY, detail)

    def ceilings_of(self, job: MalleableJob) -> tuple[Ceiling, ...]:
        """The ceilings of the job's user and of its account. Jobs without an account are as those
        of one: else a user could escape by a word that is none."""
        by_user, by_account = self.mode.max_nodes_per_user, self.mode.max_nodes_per_account
        of_user = (Ceiling(by_user, user=job.user),) if by_user else ()
        of_account = (Ceiling(by_account, account=job.account.lower()),) if by_account else ()
        return of_user + of_account

    def bars_node(self, name: str) -> bool:
        """True if no malleable job may be on the node."""
        return self.level is Level.CANARY and bool(self.nodes) and name not in self.nodes

    def notes(self, snapshot: Snapshot) -> tuple[Reason, ...]:
        """What every reader of a plan should know; nothing in the ordinary state."""
        if self.off is not None:
            return (why_off(self.off),)
        if self.level is Level.CANARY:
            strange = self.nodes - {node.name for node in snapshot.nodes}
            unknown = (Reason(Why.UNKNOWN_NODE, _named(strange)),) if strange else ()
            return (Reason(Why.CANARY), *unknown, *self.waits)
        if self.level is not Level.OBSERVE:
            return self.waits
        running = sum(len(job.active) for job in snapshot.jobs)
        risk = (Reason(Why.NOT_RENEWED, Detail(count=running)),) if running else ()
        return (Reason(Why.OBSERVED), *risk, *self.waits)


def is_in_canary(mode: Mode, user: str, account: str) -> bool:
    """True if a canary starts jobs of this user and account. Accounts are compared as Slurm does,
    whose database keeps them in small letters."""
    if not (mode.users or mode.accounts):
        return True
    return user in mode.users or account.lower() in (name.lower() for name in mode.accounts)


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
    nodes = frozenset(mode.nodes)
    calm = None if seen.no_growth is None else why_no_growth(seen.no_growth, ground.now)
    return Mandate(level, mode, nodes, seen.off, ceiling, most_kept, registering, calm)


def mode_notes(ground: Ground) -> tuple[Reason, ...]:
    """What the mode means for everybody; nothing in the ordinary state."""
    return mandate_of(ground).notes(ground.seen)


def why_off(off: Off) -> Reason:
    """Since when malleable jobs are switched off, and why."""
    detail = Detail(since=off.since)
    if off.reason:
        detail["said"] = off.reason
    return Reason(Why.OFF, detail)


def why_no_growth(calm: Off, now: datetime) -> Reason:
    """Since when the site wants no job to grow, for how long by now, and why."""
    detail = Detail(since=calm.since, seconds=(now - calm.since).total_seconds())
    if calm.reason:
        detail["said"] = calm.reason
    return Reason(Why.NO_GROWTH, detail)


def _ceiling(ground: Ground) -> tuple[Optional[int], Optional[int]]:
    """The lower of the two ceilings, and what may be kept.

    A partition that is down has no nodes here: its share must not make fragments leave, where
    an absolute ceiling does.
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
