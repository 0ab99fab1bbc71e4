"""A recorded machine for the simulator: the times in which each node was idle.

Times are seconds from the start of the record, nodes are numbers. This module does not depend on
the kind of log.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from slurm_hooks.model.resources import Resources


@dataclass(frozen=True)
class Interval:
    """Node `node` is idle from `start_s` to `end_s`.

    `known_s` is the first moment at which the end can be known: the submission of the job that
    takes the node. Infinite: the end is a surprise. If nodes have several slots, a single slot is
    idle.
    """

    node: int
    start_s: float
    end_s: float
    known_s: float = math.inf


@dataclass(frozen=True)
class Use:
    """A job has `taken` of node `node` from `start_s` to `end_s`."""

    node: int
    start_s: float
    end_s: float
    taken: Resources


@dataclass(frozen=True)
class Record:
    """Idle intervals of `nodes` nodes between `from_s` and `to_s`.

    `skipped` counts unreadable lines of the log, which were left out. `notes` explain the source of
    the intervals to readers. `uses` cover the whole log, also in a part of its time. They are empty
    if the log does not list the resources of jobs. `sizes` are the sizes of all nodes in order,
    empty if unknown. Each node has `slots`, and each slot is idle or not. With more than 1 slot all
    sums count slots: seconds of a slot, and not of a node. Until `quiet_until_s` so few jobs start
    that the log probably begins later: 0 if that is not so.
    """

    intervals: tuple[Interval, ...]
    nodes: int
    from_s: float
    to_s: float
    skipped: int = 0
    notes: tuple[str, ...] = ()
    uses: tuple[Use, ...] = ()
    sizes: tuple[Resources, ...] = ()
    slots: int = 1
    quiet_until_s: float = 0.0

    def __post_init__(self) -> None:
        if self.to_s <= self.from_s:
            raise ValueError(f"the record ends at {self.to_s:g} s, before {self.from_s:g} s")

    @property
    def window_s(self) -> float:
        """The length of the record in seconds."""
        return self.to_s - self.from_s

    @property
    def noun(self) -> str:
        """The noun for the unit of its sums."""
        return "node" if self.slots == 1 else "GPU"

    @property
    def idle_node_s(self) -> float:
        """Node-seconds of idle time."""
        return math.fsum(i.end_s - i.start_s for i in self.intervals)

    def idle_in_gaps_s(self, least_s: float) -> float:
        """Node-seconds of idle time in gaps of at least `least_s`."""
        lengths = (i.end_s - i.start_s for i in self.intervals)
        return math.fsum(s for s in lengths if s >= least_s)

    @property
    def equivalent_nodes(self) -> float:
        """The time average of idle nodes."""
        return self.idle_node_s / self.window_s

    @property
    def longest_lull(self) -> tuple[float, float]:
        """The longest stretch in which no node joins or leaves: its start and its end."""
        changes = {self.from_s, self.to_s}
        changes.update(at for i in self.intervals for at in (i.start_s, i.end_s))
        times = sorted(changes)
        return max(zip(times, times[1:]), key=lambda lull: lull[1] - lull[0])

    def between(self, from_s: float, to_s: float) -> Record:
        """The part of the record from `from_s` to `to_s`."""
        cut = (_cut(i, from_s, to_s) for i in self.intervals)
        kept = tuple(i for i in cut if i.end_s > i.start_s)
        return replace(self, intervals=kept, from_s=from_s, to_s=to_s)


def _cut(interval: Interval, from_s: float, to_s: float) -> Interval:
    start, end = max(interval.start_s, from_s), min(interval.end_s, to_s)
    return replace(interval, start_s=start, end_s=end)


def dedicated(nodes: int, from_s: float, to_s: float) -> Record:
    """A machine of `nodes` nodes that are idle all the time."""
    whole = tuple(Interval(n, from_s, to_s) for n in range(nodes))
    return Record(whole, nodes, from_s, to_s)


@dataclass(frozen=True)
class Moment:
    """The changes on the machine at a moment: nodes that leave come first."""

    at_s: float
    leaves: tuple[int, ...]
    joins: tuple[Interval, ...]


def moments(intervals: Iterable[Interval], to_s: float) -> list[Moment]:
    """All changes before `to_s` in order, with the changes of a moment together."""
    leaves: dict[float, list[int]] = {}
    joins: dict[float, list[Interval]] = {}
    for interval in sorted(intervals, key=lambda i: (i.start_s, i.node)):
        joins.setdefault(interval.start_s, []).append(interval)
        if interval.end_s < to_s:
            leaves.setdefault(interval.end_s, []).append(interval.node)
    times = sorted(leaves.keys() | joins.keys())
    return [Moment(t, tuple(sorted(leaves.get(t, ()))), tuple(joins.get(t, ()))) for t in times]
