"""Which idle nodes a malleable job could have now, and why it could not have the others. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Optional

from slurm_hooks.model import ON_NODES, Level, Node, NodeState, Snapshot
from slurm_hooks.planning.ground import Ground, ground_of
from slurm_hooks.planning.modes import NOT_A_CANARY_NODE, is_in_canary
from slurm_hooks.plural import plural
from slurm_hooks.settings import Mode, Settings
from slurm_hooks.slurm.text import fold


@dataclass(frozen=True)
class Room:
    """The idle nodes of a partition: those that could be used, and how many not, by reason.

    `left` is what the site's ceiling leaves to all malleable jobs together (None: no ceiling).
    """

    partition: str
    usable: tuple[str, ...]
    barred: tuple[tuple[str, int], ...] = ()
    left: Optional[int] = None


def find_room(snapshot: Snapshot, settings: Settings, partition: str, feature: str = "") -> Room:
    """The room for a job of this partition that leaves all to the settings.

    `feature` is one that its nodes must have; an expression of several is left to Slurm.
    """
    ground = ground_of(snapshot, settings)
    hole = timedelta(seconds=settings.lease.shortest_hole_s)
    whys = {
        node.name: _why_not(node, ground, hole, feature)
        for node in snapshot.nodes
        if partition in node.partitions and node.state is NodeState.FREE
    }
    ceiling, jobs = ground.mandate.ceiling, snapshot.jobs
    taken = sum(len(f.nodes) for job in jobs for f in job.fragments if f.state in ON_NODES)
    return Room(
        partition,
        usable=tuple(name for name, why in whys.items() if not why),
        barred=tuple(sorted(Counter(why for why in whys.values() if why).items())),
        left=None if ceiling is None else max(0, ceiling - taken),
    )


def _why_not(node: Node, ground: Ground, hole: timedelta, feature: str) -> str:
    if ground.mandate.bars_node(node.name):
        return NOT_A_CANARY_NODE
    if node.name in ground.suspects:
        return ground.suspects[node.name]
    if feature.isidentifier() and feature not in node.features:
        return f"without the feature {feature}"
    latest = ground.ends.latest.get(node.name)
    is_short = latest is not None and latest - ground.now < hole
    return "claimed by others too soon" if is_short else ""


def room_lines(room: Room, wanted: int) -> Iterator[str]:
    """What to expect of a job that wants so many nodes."""
    names = f" ({fold(room.usable)})" if room.usable else ""
    told = [
        f"{plural(len(room.usable), 'idle node')} of partition {room.partition} can be used{names}"
    ]
    told += [f"{barred} not: {why}" for why, barred in room.barred]
    yield "; ".join(told)
    if room.left is not None and room.left < wanted:
        yield (
            f"mode.max_nodes and max_share leave {plural(room.left, 'node')}, and the check wants "
            f"{wanted}"
        )
    if len(room.usable) < wanted:
        yield f"the check wants {wanted}: it waits until other jobs leave more to it"


def is_left_out(mode: Mode, user: str, account: str) -> bool:
    """Whether a canary leaves out the jobs of this user; empty is an account that Slurm chooses."""
    is_unknown = bool(mode.accounts) and not account
    is_out = not (is_unknown or is_in_canary(mode, user, account))
    return mode.level == Level.CANARY.value and is_out
