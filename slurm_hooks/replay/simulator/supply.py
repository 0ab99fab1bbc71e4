"""Which nodes are there, who has them, and how long they are known to stay.

Nodes with a known end within the look-ahead form classes, one for each end; all others are one
class, the first.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
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
        return any(True for _ in self._ending(now))

    def classes(self, now: float) -> Classes:
        """Nodes by known end, as far ahead as it matters."""
        rules, early_s = self._rules, self._rules.early_s
        left = {i.node: i.end_s - early_s - now for i in self._ending(now)}
        if not left:
            return ONE_CLASS
        spans = set(left.values())
        gone = {left_s for left_s in spans if rules.is_closing(left_s)}
        holes = {left_s: rules.hole(left_s) for left_s in spans - gone}
        place = {UNCLAIMED: 0}
        for hole in sorted(set(holes.values()) - {UNCLAIMED}):
            place[hole] = len(place)
        at = {left_s: place[hole] for left_s, hole in holes.items() if place[hole]}
        of_node = {node: at[left_s] for node, left_s in left.items() if left_s in at}
        closing = frozenset(node for node, left_s in left.items() if left_s in gone)
        return Classes(tuple(place), of_node, closing)

    def _ending(self, now: float) -> Iterator[Interval]:
        """The intervals of present nodes whose end is known and near."""
        last = bisect_left(self._ends, now + self._rules.reach_s + self._rules.early_s)
        present = self._present
        for interval in self._by_end[bisect_right(self._ends, now) : last]:
            if interval.known_s <= now and present.get(interval.node) is interval:
                yield interval
