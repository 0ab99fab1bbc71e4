"""The nodes of a recorded machine that are idle or partly idle in its log, and their jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Optional

from slurm_hooks.model import Node, NodeState, PlannedStart, Resources
from slurm_hooks.replay.grain import Grain
from slurm_hooks.replay.record import Interval, Moment, Record
from slurm_hooks.replay.world.calendar import Calendar
from slurm_hooks.replay.world.member import Member, name_of

FIRST_OTHER = 10_000_000  # the number of the first job of others: above all of ours
Held = tuple[Member, int]  # an element that runs


class Nodes:
    """The nodes at a moment, without nodes of other jobs, which fragments cannot use.

    Some slots of a listed node are idle or ours. Other jobs have the rest.
    """

    def __init__(
        self, record: Record, partitions: frozenset[str], calendar: Calendar, grain: Grain
    ) -> None:
        self._to_s = record.to_s
        self._calendar = calendar
        self._grain = grain
        self._present: dict[int, list[Interval]] = {}  # one for each slot that others leave
        self._held: dict[int, dict[Held, int]] = {}  # slots of each element, the oldest first
        self._closing: dict[int, Held] = {}  # who has all memory of a node beside its slots
        self.idle_since: dict[int, float] = {}  # of nodes that jobs could have parts of
        self._shown = cache(self._node)
        self._partitions = partitions

    @property
    def present(self) -> int:
        """The number of slots, free or not."""
        return sum(map(len, self._present.values()))

    @property
    def used(self) -> int:
        """The number of slots of jobs."""
        return sum(sum(held.values()) for held in self._held.values())

    def room(self, node: int) -> int:
        """The number of free slots of the node. Negative if jobs of ours have slots that other jobs
        take now."""
        return len(self._present.get(node, ())) - sum(self._held.get(node, {}).values())

    def join(self, moment: Moment) -> None:
        """Add slots."""
        for interval in moment.joins:
            self._present.setdefault(interval.node, []).append(interval)
            self._rest(interval.node, moment.at_s)

    def leave(self, moment: Moment) -> dict[Member, list[int]]:
        """Remove slots. Return the jobs that had too many there, and their elements that end."""
        robbed: dict[Member, list[int]] = {}
        for node in moment.leaves:
            self._go(node, moment.at_s)
        for node in dict.fromkeys(moment.leaves):
            for member, index in self._victims(node):
                self._end(node, (member, index))
                robbed.setdefault(member, []).append(index)
        return robbed

    def _go(self, node: int, at_s: float) -> None:
        """Remove a slot of the node that is idle until then."""
        slots = self._present[node]
        slots.remove(next(interval for interval in slots if interval.end_s == at_s))
        self.idle_since.pop(node, None)
        if not slots:
            del self._present[node]

    def _victims(self, node: int) -> list[Held]:
        """The elements that Slurm preempts: the oldest first, until there is room. Then Slurm tries
        the last element before the others, once (preempt_reorder_count)."""
        lacking = -self.room(node)
        held = list(self._held.get(node, {}).items())
        first = _enough(held, lacking)
        victims = [key for key, _ in _enough([*first[-1:], *first[:-1]], lacking)]
        closing = self._closing.get(node)
        return victims if closing is None or closing in victims else [*victims, closing]

    def give(self, node: int, held: Held, slots: int, closes: bool) -> None:
        """Give slots of the node to an element, and all memory if it `closes` the node."""
        self._held.setdefault(node, {})[held] = slots
        self.idle_since.pop(node, None)
        if closes:
            self._closing[node] = held

    def _end(self, node: int, held: Held) -> None:
        del self._held[node][held]
        if not self._held[node]:
            del self._held[node]
        if self._closing.get(node) == held:
            del self._closing[node]

    def take(self, node: int, held: Held, now: float) -> None:
        """Take all slots from an element."""
        self._end(node, held)
        self._rest(node, now)

    def _rest(self, node: int, now: float) -> None:
        if self._grain.unit and self._is_idle(node):
            self.idle_since[node] = now

    def _is_idle(self, node: int) -> bool:
        return node not in self._held and len(self._present.get(node, ())) == self._grain.slots

    def shown(self) -> tuple[Node, ...]:
        """The nodes in Slurm's view."""
        return tuple(
            self._shown(node, self._state(node), self._use(node), self.idle_since.get(node))
            for node in sorted(self._present)
            if self._is_shown(node)
        )

    def _is_shown(self, node: int) -> bool:
        """True if jobs of whole nodes have the node or could have it. For other jobs any rest
        counts."""
        return bool(self._grain.unit) or node in self._held or self._is_idle(node)

    def _state(self, node: int) -> NodeState:
        if self._is_idle(node):
            return NodeState.FREE
        return NodeState.SHARED if self.room(node) > 0 else NodeState.BUSY

    def _use(self, node: int) -> Resources:
        used = self._grain.of(self._grain.slots - self.room(node))
        whole = self._grain.of(self._grain.slots)
        return replace(used, memory_mib=whole.memory_mib) if node in self._closing else used

    def _node(self, node: int, state: NodeState, used: Resources, since: Optional[float]) -> Node:
        whole = self._grain.of(self._grain.slots)
        return Node(
            name_of(node),
            state,
            self._partitions,
            cpus=whole.cpus or 1,
            memory_mib=whole.memory_mib,
            gres=whole.gres,
            used=used,
            idle_since=self._at(since),
        )

    def _at(self, seconds: Optional[float]) -> Optional[datetime]:
        return None if seconds is None else self._calendar.at(seconds)

    def planned(self, now: float) -> tuple[PlannedStart, ...]:
        """The planned starts of other jobs. All starts at the same moment are a single job."""
        names: dict[float, set[str]] = {}
        for interval in self._known(now):
            names.setdefault(interval.end_s, set()).add(name_of(interval.node))
        return tuple(
            PlannedStart(str(FIRST_OTHER + place), self._calendar.at(end_s), frozenset(nodes))
            for place, (end_s, nodes) in enumerate(sorted(names.items()))
        )

    def ends(self, now: float) -> set[float]:
        """The known times at which nodes leave."""
        return {interval.end_s for interval in self._known(now)}

    def _known(self, now: float) -> Iterator[Interval]:
        present = (interval for slots in self._present.values() for interval in slots)
        return (i for i in present if i.known_s <= now < i.end_s < self._to_s)


def _enough(held: list[tuple[Held, int]], lacking: int) -> list[tuple[Held, int]]:
    """The first of these that together have this number of slots."""
    first = []
    for element in held:
        if lacking <= 0:
            break
        first.append(element)
        lacking -= element[1]
    return first


def known_later(record: Record) -> list[float]:
    """The moments at which ends of idle nodes become known after their start, in order."""
    return sorted({i.known_s for i in record.intervals if i.start_s < i.known_s < i.end_s})
