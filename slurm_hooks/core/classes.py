"""From single nodes to classes: nodes that are alike for the allocator are counted together.

Two nodes are alike if the same jobs could use them and their holes end in the same look-ahead
period. Which of them a job gets is decided afterwards, by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.core.holes import MINUTE, lease_within
from slurm_hooks.model import Fragment, MalleableJob, Node, NodeState


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

    `until_next` is the time until the next tick.
    """

    now: datetime
    nodes: Mapping[str, Node]
    latest: Mapping[str, Optional[datetime]]
    horizon: timedelta
    longest_lease: timedelta
    until_next: timedelta


def pool_of(
    ground: Ground,
    jobs: Iterable[MalleableJob],
    staying: Mapping[int, tuple[Fragment, ...]],
    taken: frozenset[str],
) -> Pool:
    """Class all free nodes and all nodes of `staying` fragments; `taken` nodes are not free."""
    ranked = sorted(jobs, key=lambda job: job.job_id)
    pool = Pool()
    for node in ground.nodes.values():
        if node.state is NodeState.FREE and node.name not in taken:
            users = tuple(j.job_id for j in ranked if not misfit(ground, j, node.name))
            if users:
                pool.free.setdefault(_key(ground, node.name, users), []).append(node.name)
    for found in pool.free.values():
        found.sort(key=lambda name: (-_seconds_open(ground, name), natural(name)))
    for job in ranked:
        for fragment in staying.get(job.job_id, ()):
            worst = min(fragment.nodes, key=lambda name: (_seconds_open(ground, name), name))
            users = tuple(j.job_id for j in ranked if not misfit(ground, j, worst))
            key = _key(ground, worst, users)
            pool.held.setdefault(key, {}).setdefault(job.job_id, []).append(fragment)
    return pool


def misfit(ground: Ground, job: MalleableJob, name: str) -> str:
    """Why a node is of no use to a job, whether free or not; empty if it is."""
    node, latest = ground.nodes[name], ground.latest[name]
    if job.partition not in node.partitions:
        return f"not in partition {job.partition}, or the partition is down"
    if name in job.avoid:
        return "a fragment died there at once"
    if latest is not None and latest - ground.now < job.request.shortest_hole:
        return "its hole is too short"
    longest = min(job.request.lease, ground.longest_lease)
    return "" if lease_within(ground.now, latest, longest) else "its hole is too short"


def _key(ground: Ground, name: str, users: tuple[int, ...]) -> ClassKey:
    seconds = _seconds_open(ground, name)
    open_s = math.inf if seconds >= ground.horizon.total_seconds() else seconds
    return ClassKey(open_s, users)


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
