"""The present nodes, their jobs, and how long they are known to stay.

Nodes with a known end within the look-ahead form a class for each end. All other nodes form the
first class.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from papers.rules import Rules
from slurm_hooks.replay.record import Interval, Moment, Record
from slurm_hooks.replay.running import Running


@dataclass(frozen=True)
class Classes:
    """The seconds for which nodes of each class stay, first the class without an end.

    It also has the class of each node outside the first class.
    """

    open_s: tuple[float, ...]
    of_node: dict[int, int]

    @property
    def is_one(self) -> bool:
        """True if all nodes are equal."""
        return len(self.open_s) == 1


ONE_CLASS = Classes((math.inf,), {})


class Supply:
    """The idle nodes of the machine at a moment."""

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
        """The number of present nodes, free or not."""
        return len(self._present)

    def leave(self, nodes: Sequence[int]) -> dict[Running, list[int]]:
        """Remove nodes. Return the jobs that had them, with their nodes."""
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
        """Add nodes."""
        for interval in moment.joins:
            self._present[interval.node] = interval
            self.free[interval.node] = None

    def give(self, node: int, job: Running) -> None:
        """Hand a free node to a job."""
        del self.free[node]
        self._owner[node] = job
        job.nodes[node] = job.since

    def take(self, node: int, job: Running) -> None:
        """Take a node from a job."""
        del self._owner[node], job.nodes[node]
        self.free[node] = None

    def classes(self, now: float) -> Classes:
        """Nodes by known end, as far ahead as it matters for their present or next jobs."""
        left = {i.node: self._rules.open_s(i.end_s - now) for i in self._ending(now)}
        spans = sorted(set(left.values()) - {math.inf})
        place = {open_s: at for at, open_s in enumerate((math.inf, *spans))}
        of_node = {node: place[open_s] for node, open_s in left.items() if place[open_s]}
        return Classes(tuple(place), of_node)

    def _ending(self, now: float) -> Iterator[Interval]:
        """The intervals of present nodes whose end is known and near."""
        last = bisect_left(self._ends, now + self._rules.horizon_s)
        present = self._present
        for interval in self._by_end[bisect_right(self._ends, now) : last]:
            if interval.known_s <= now and present.get(interval.node) is interval:
                yield interval
