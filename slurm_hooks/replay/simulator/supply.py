"""Which nodes are there, who has them, and how long they are known to stay.

Nodes with a known end within the look-ahead form classes, one for each end; all others are one
class, the first.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_hooks.replay.record import Interval, Moment, Record
from slurm_hooks.replay.rules import Hole, Rules
from slurm_hooks.replay.simulator.running import Running

UNCLAIMED = Hole(math.inf, True)


@dataclass(frozen=True)
class Classes:
    """What nodes of each class have in common, unclaimed ones first; which class a node is in (if
    not the first), and the nodes that have to be given back now."""

    holes: tuple[Hole, ...]
    of_node: dict[int, int]
    closing: frozenset[int]

    @property
    def is_one(self) -> bool:
        """True if all nodes are alike."""
        return len(self.holes) == 1 and not self.closing


ONE_CLASS = Classes((UNCLAIMED,), {}, frozenset())


class Supply:
    """The idle nodes of the machine at one moment."""

    def __init__(self, record: Record, sees_ends: bool, rules: Rules) -> None:
        self._rules = rules
        self._present: dict[int, Interval] = {}
        self._owner: dict[int, Running] = {}
        self.free: dict[int, None] = {}  # in the order they became free
        ends = sorted(record.intervals, key=lambda i: (i.end_s, i.node)) if sees_ends else []
        self._by_end = [i for i in ends if i.known_s < i.end_s < record.to_s]
        self._ends = [i.end_s for i in self._by_end]

    @property
    def present(self) -> int:
        """How many nodes there are, free or not."""
        return len(self._present)

    def leave(self, nodes: Sequence[int]) -> dict[Running, list[int]]:
        """Nodes go; the jobs that had them, and which."""
        robbed: dict[Running, list[int]] = {}
        for node in nodes:
            del self._present[node]
            owner = self._owner.pop(node, None)
            if owner is None:
                del self.free[node]
            else:
                robbed.setdefault(owner, []).append(node)
        return robbed

    def join(self, moment: Moment) -> None:
        """Nodes come."""
        for interval in moment.joins:
            self._present[interval.node] = interval
            self.free[interval.node] = None

    def give(self, node: int, job: Running) -> bool:
        """Hand a node to a job; False if it is no longer there to be given."""
        if node not in self.free:
            return False
        del self.free[node]
        self._owner[node] = job
        job.nodes[node] = None
        return True

    def take(self, node: int, job: Running) -> bool:
        """Take a node from a job; False if it does not have it any more."""
        if self._owner.get(node) is not job:
            return False
        del self._owner[node], job.nodes[node]
        self.free[node] = None
        return True

    def is_closing(self, now: float) -> bool:
        """True if some end is known and near, so that time alone changes the answer."""
        return bool(self._left(now))

    def classes(self, now: float) -> Classes:
        """Nodes by known end, as far ahead as it matters."""
        left = self._left(now)
        if not left:
            return ONE_CLASS
        rules = self._rules
        closing = frozenset(n for n, left_s in left.items() if rules.is_closing(left_s))
        holes = {n: rules.hole(left_s) for n, left_s in left.items() if n not in closing}
        others = sorted(set(holes.values()) - {UNCLAIMED})
        place = {hole: c for c, hole in enumerate([UNCLAIMED, *others])}
        of_node = {n: place[hole] for n, hole in holes.items() if hole != UNCLAIMED}
        return Classes(tuple(place), of_node, closing)

    def _left(self, now: float) -> dict[int, float]:
        """Seconds until a lease must have ended, of present nodes whose end is known and near."""
        rules = self._rules
        reach = rules.reach_s + rules.early_s
        at, found = bisect_right(self._ends, now), {}
        while at < len(self._ends) and self._ends[at] < now + reach:
            interval = self._by_end[at]
            if interval.known_s <= now and self._present.get(interval.node) is interval:
                found[interval.node] = interval.end_s - rules.early_s - now
            at += 1
        return found
