"""What a tick may do: nothing new, only watch, only for a canary, or all; and how much in all.

Settings and the switch say so at each tick, whatever Slurm would allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from typing import Optional

from slurm_hooks.model import Level, MalleableJob, Off, Reason, Snapshot, Why
from slurm_hooks.model.moments import shown
from slurm_hooks.model.plural import plural
from slurm_hooks.planning.ground import Ground
from slurm_hooks.settings.values import Mode

MOST_NAMED = 5


@dataclass(frozen=True)
class Mandate:
    """What one tick may do. `nodes` are those of the canary, empty if it has any.

    `ceiling` is the most nodes that all malleable jobs may be given together (None: no limit).
    What they have beyond `most_kept` is taken back: the same, unless the ceiling is a share of
    partitions that are not all up. While nodes are `registering` nothing starts: a slurmctld whose
    last writes were lost would start what runs there already, and drain the node for that.
    """

    level: Level
    mode: Mode
    nodes: frozenset[str] = frozenset()
    off: Optional[Off] = None
    ceiling: Optional[int] = None
    most_kept: Optional[int] = None
    registering: frozenset[str] = frozenset()

    @cached_property
    def registering_line(self) -> str:
        """What nothing starts for; empty if it may."""
        if not self.registering:
            return ""
        have = "has" if len(self.registering) == 1 else "have"
        told = f"{have} told the slurmctld that began what runs there"
        return f"nothing starts until {_named(self.registering)} {told}"

    def bars_job(self, job: MalleableJob) -> Optional[Reason]:
        """Why no fragment of the job may be on a node, for its people; None if some may."""
        if self.off is not None:
            text = (
                f"{off_line(self.off)}: nothing starts until `malleable on`; jobs can be submitted "
                "meanwhile, and wait"
            )
            return Reason(Why.OFF, text)
        if self.level is not Level.CANARY or is_in_canary(self.mode, job.user, job.account):
            return None
        users = f"users {', '.join(self.mode.users)}" if self.mode.users else ""
        accounts = f"accounts {', '.join(self.mode.accounts)}" if self.mode.accounts else ""
        whom = " and of ".join(text for text in (users, accounts) if text)
        text = f"waits: the site lets only jobs of {whom} run for now (mode.level = canary)"
        return Reason(Why.CANARY, text)

    def bars_node(self, name: str) -> bool:
        """True if no malleable job may be on the node."""
        return self.level is Level.CANARY and bool(self.nodes) and name not in self.nodes

    def lines(self, snapshot: Snapshot) -> tuple[str, ...]:
        """What everybody should know who reads a plan; nothing in the ordinary state."""
        if self.off is not None:
            return (off_line(self.off),)
        waits = (self.registering_line,) if self.registering else ()
        if self.level is Level.CANARY:
            return (
                "mode.level = canary: only its jobs and nodes are used",
                *_strange_nodes(self.nodes - {node.name for node in snapshot.nodes}),
                *waits,
            )
        if self.level is not Level.OBSERVE:
            return waits
        lines = ["mode.level = observe: nothing is written, this is what would be done"]
        running = sum(len(job.active) for job in snapshot.jobs)
        if running:
            lines.append(
                f"{plural(running, 'fragment')} in use, and no tick renews leases or puts "
                "fragments back: before mode.level = observe use `malleable off`, and wait until "
                "they have left"
            )
        return (*lines, *waits)


def is_in_canary(mode: Mode, user: str, account: str) -> bool:
    """True if a canary starts jobs of this user and account. Accounts are compared as Slurm does,
    whose database keeps them in small letters."""
    if not (mode.users or mode.accounts):
        return True
    return user in mode.users or account.lower() in (name.lower() for name in mode.accounts)


def _strange_nodes(names: frozenset[str]) -> tuple[str, ...]:
    if not names:
        return ()
    return (f"mode.nodes: Slurm knows no node {_named(names)}",)


def _named(names: frozenset[str]) -> str:
    rest = len(names) - MOST_NAMED
    return ", ".join(nsmallest(MOST_NAMED, names)) + (f" and {rest} more" if rest > 0 else "")


def mandate_of(ground: Ground) -> Mandate:
    """The mandate of a tick. The switch wins over the settings."""
    seen, settings, mode = ground.seen, ground.settings, ground.settings.mode
    level = Level.OFF if seen.off is not None else Level(mode.level)
    ceiling, most_kept = _ceiling(ground)
    ours = (n.name for n in seen.nodes if not n.partitions.isdisjoint(settings.site.partitions))
    registering = seen.registering.intersection(ours) if seen.registering else frozenset()
    nodes = frozenset(mode.nodes)
    return Mandate(level, mode, nodes, seen.off, ceiling, most_kept, registering)


def mode_lines(ground: Ground) -> tuple[str, ...]:
    """What the mode means for everybody; nothing in the ordinary state."""
    return mandate_of(ground).lines(ground.seen)


def off_line(off: Off) -> str:
    """Since when malleable jobs are switched off, and why."""
    why = f" ({off.reason})" if off.reason else ""
    return f"malleable jobs are switched off since {shown(off.since)}{why}"


def ceiling_text(nodes: int) -> str:
    """How many nodes the site allows, as a clause."""
    most = plural(nodes, "node")
    return f"all malleable jobs together may have {most} (mode.max_nodes, max_share)"


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
