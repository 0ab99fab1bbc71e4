"""From single nodes to classes: nodes that are alike for the allocator are counted together.

Two nodes are alike if the same jobs could use them and their holes end in the same look-ahead
period. Which of them a job gets is decided afterwards, by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Optional

from slurm_hooks.model import Fragment, Node, NodeState
from slurm_hooks.planning.holes import MINUTE

if TYPE_CHECKING:
    from slurm_hooks.planning.suits import Suits


@dataclass(frozen=True, order=True)
class ClassKey:
    """Seconds for which the nodes stay open, and the jobs that may use them."""

    open_s: float
    jobs: tuple[int, ...]


@dataclass
class Pool:
    """Nodes that could be handed out or kept, by class.

    `free` lists free nodes, longest hole first; `held` the fragments of each job in each class.
    """

    free: dict[ClassKey, list[str]] = field(default_factory=dict)
    held: dict[ClassKey, dict[int, list[Fragment]]] = field(default_factory=dict)

    @property
    def keys(self) -> list[ClassKey]:
        """All classes, in a fixed order."""
        return sorted(self.free.keys() | self.held.keys())

    def capacity(self, key: ClassKey) -> int:
        """Free and held nodes of a class."""
        held = (f for found in self.held.get(key, {}).values() for f in found)
        return len(self.free.get(key, ())) + sum(len(f.nodes) for f in held)


@dataclass(frozen=True)
class Ground:
    """What is the same for all jobs: the moment, every node, the latest lease end on each.

    `until_next` is the time until the next tick, `suspects` says why nobody should use a node.
    """

    now: datetime
    nodes: Mapping[str, Node]
    latest: Mapping[str, Optional[datetime]]
    horizon: timedelta
    longest_lease: timedelta
    until_next: timedelta
    suspects: Mapping[str, str] = field(default_factory=dict)


def pool_of(
    ground: Ground,
    suits: Suits,
    staying: Mapping[int, tuple[Fragment, ...]],
    taken: frozenset[str],
) -> Pool:
    """Class all free nodes and all nodes of `staying` fragments; `taken` nodes are not free."""
    pool = Pool()
    seconds = {name: _seconds_open(ground, name) for name in ground.nodes}
    for name, node in ground.nodes.items():
        if node.state is NodeState.FREE and name not in taken:
            users = suits.users(name)
            if users:
                pool.free.setdefault(_key(ground, seconds[name], users), []).append(name)
    for found in pool.free.values():
        found.sort(key=lambda name: (-seconds[name], natural(name)))
    for job_id, fragments in sorted(staying.items()):
        for fragment in fragments:
            worst = min(fragment.nodes, key=lambda name: (seconds[name], name))
            key = _key(ground, seconds[worst], suits.users(worst))
            pool.held.setdefault(key, {}).setdefault(job_id, []).append(fragment)
    return pool


def _key(ground: Ground, seconds: float, users: tuple[int, ...]) -> ClassKey:
    return ClassKey(math.inf if seconds >= ground.horizon.total_seconds() else seconds, users)


def _seconds_open(ground: Ground, name: str) -> float:
    """Whole minutes to the latest lease end, in seconds; infinite if nobody claims the node."""
    latest = ground.latest[name]
    if latest is None:
        return math.inf
    return max((latest - ground.now) // MINUTE, 0) * 60.0


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sorting key by which n9 comes before n10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts)
