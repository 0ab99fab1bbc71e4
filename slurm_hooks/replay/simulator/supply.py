"""Which nodes are there, who has them, and how long they are known to stay.

Nodes with a known end within the look-ahead form classes, one for each end; all others are one
class, the first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurm_hooks.replay.record import Interval, Moment, Record
from slurm_hooks.replay.rules import UNCLAIMED, Hole, Rules
from slurm_hooks.replay.simulator.running import Running


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
    """The idle nodes of the machine at one moment, under the `rules` of that moment."""

    def __init__(self, record: Record, sees_ends: bool, rules: Rules) -> None:
        self.rules = rules
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
        job.nodes[node] = job.since
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

    def gains_past(self, job: Running) -> bool:
        """True if the job takes nodes with no regard to planned starts but the nearest."""
        return self.rules.stays(job.hit_s, job.size + 1, 1)

    def classes(self, now: float, jobs: Iterable[Running]) -> Classes:
        """Nodes by known end, as far ahead as it matters to who has them, or might get them."""
        rules, early_s = self.rules, self.rules.early_s
        ends = {i.node: i.end_s for i in self._ending(now)}
        if not ends:
            return ONE_CLASS
        gains = [self.gains_past(job) for job in jobs]
        past = self._past(ends, any(gains))
        left = {node: (end_s - early_s - now, node in past) for node, end_s in ends.items()}
        spans = set(left.values())
        gone = {span for span in spans if not span[1] and rules.is_closing(span[0])}
        holes = {(s, p): (rules.hole_past if p else rules.hole)(s) for s, p in spans - gone}
        if all(gains):
            holes = {s: h._replace(is_worth_taking=h.is_worth_past) for s, h in holes.items()}
        place = {UNCLAIMED: 0}
        for hole in sorted(set(holes.values()) - {UNCLAIMED}):
            place[hole] = len(place)
        at = {span: place[hole] for span, hole in holes.items() if place[hole]}
        of_node = {node: at[span] for node, span in left.items() if span in at}
        closing = frozenset(node for node, span in left.items() if span in gone)
        return Classes(tuple(place), of_node, closing)

    def _past(self, ends: Mapping[int, float], is_free_past: bool) -> set[int]:
        """The nodes whose ends do not make anybody leave: those of jobs that stay, and free ones if
        some job takes such nodes. What goes at one moment is one hit."""
        owners = {node: self._owner.get(node) for node in ends}
        taken = Counter((owner, ends[node]) for node, owner in owners.items())
        return {
            node
            for node, owner in owners.items()
            if (
                is_free_past
                if owner is None
                else self.rules.stays(owner.hit_s, owner.size, taken[owner, ends[node]])
            )
        }

    def _ending(self, now: float) -> Iterator[Interval]:
        """The intervals of present nodes whose end is known and near."""
        last = bisect_left(self._ends, now + self.rules.reach_s + self.rules.early_s)
        present = self._present
        for interval in self._by_end[bisect_right(self._ends, now) : last]:
            if interval.known_s <= now and present.get(interval.node) is interval:
                yield interval
