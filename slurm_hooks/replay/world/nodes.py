"""The nodes of a recorded machine that are idle in its log, and who has them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from slurm_hooks.model import Node, NodeState, PlannedStart
from slurm_hooks.replay.record import Interval, Moment, Record
from slurm_hooks.replay.world.calendar import Calendar
from slurm_hooks.replay.world.member import Member, name_of

FIRST_OTHER = 10_000_000  # the number of the first job of others: above all of ours


class Nodes:
    """Which nodes there are now. Those of other jobs are left out: no fragment can use them."""

    def __init__(self, record: Record, partitions: frozenset[str], calendar: Calendar) -> None:
        self._to_s = record.to_s
        self._calendar = calendar
        self._present: dict[int, Interval] = {}
        self._owners: dict[int, Member] = {}
        self._shown = cache(lambda node, state: Node(name_of(node), state, partitions))

    @property
    def present(self) -> int:
        """How many nodes there are, free or not."""
        return len(self._present)

    @property
    def used(self) -> int:
        """How many nodes jobs have."""
        return len(self._owners)

    def is_free(self, node: int) -> bool:
        """Whether the node is there, and no job has it."""
        return node in self._present and node not in self._owners

    def join(self, moment: Moment) -> None:
        """Nodes come."""
        self._present.update((interval.node, interval) for interval in moment.joins)

    def leave(self, moment: Moment) -> dict[Member, list[int]]:
        """Nodes go. Gives the jobs that had them, and which."""
        robbed: dict[Member, list[int]] = {}
        for node in moment.leaves:
            del self._present[node]
            owner = self._owners.pop(node, None)
            if owner is not None:
                robbed.setdefault(owner, []).append(node)
        return robbed

    def give(self, node: int, member: Member) -> None:
        """A job has the node from now on."""
        self._owners[node] = member

    def take(self, node: int) -> None:
        """No job has the node from now on."""
        del self._owners[node]

    def shown(self) -> tuple[Node, ...]:
        """The nodes as Slurm shows them."""
        busy, free = NodeState.BUSY, NodeState.FREE
        return tuple(
            self._shown(node, busy if node in self._owners else free)
            for node in sorted(self._present)
        )

    def planned(self, now: float) -> tuple[PlannedStart, ...]:
        """The planned starts of others: what starts at one moment is one job."""
        names: dict[float, set[str]] = {}
        for interval in self._known(now):
            names.setdefault(interval.end_s, set()).add(name_of(interval.node))
        return tuple(
            PlannedStart(str(FIRST_OTHER + place), self._calendar.at(end_s), frozenset(found))
            for place, (end_s, found) in enumerate(sorted(names.items()))
        )

    def ends(self, now: float) -> set[float]:
        """When nodes are known to go."""
        return {interval.end_s for interval in self._known(now)}

    def _known(self, now: float) -> Iterator[Interval]:
        present = self._present.values()
        return (i for i in present if i.known_s <= now < i.end_s < self._to_s)


def known_later(record: Record) -> list[float]:
    """When the ends of idle nodes become known, later than they begin, in order."""
    return sorted({i.known_s for i in record.intervals if i.start_s < i.known_s < i.end_s})
