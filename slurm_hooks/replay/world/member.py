"""A malleable job of the recorded machine, with its fragments in Slurm's view.

A fragment that leaves, or that Slurm preempts, is held again at once, and then waits. Its agent
reports the cost of an interruption from the first moment on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Optional

from slurm_hooks.model import (
    Curve,
    Fragment,
    FragmentId,
    FragmentState,
    Intent,
    MalleableJob,
    Mark,
    Request,
    Said,
    Slurm,
)
from slurm_hooks.replay.grain import Grain
from slurm_hooks.replay.running import Pause, Running
from slurm_hooks.replay.work import Kind
from slurm_hooks.replay.world.calendar import Calendar
from slurm_hooks.settings.values import Settings

USER = "replay"
OTHERS = "others"


@dataclass(frozen=True)
class Terms:
    """The common terms of all jobs' fragments.

    Without manners, no part of a node leaves to let other jobs be packed better. Each job has a
    core of `core` nodes, which run from its first moment on and are in no record.
    """

    settings: Settings
    slurm: Slurm
    calendar: Calendar
    grain: Grain
    redoes: bool = False
    has_manners: bool = True
    core: int = 0

    @property
    def partitions(self) -> frozenset[str]:
        """The partitions of all nodes. Parts of nodes also need other jobs'."""
        others = (OTHERS,) if self.grain.unit and self.has_manners else ()
        return frozenset((*self.settings.site.partitions, *others))

    @property
    def partition(self) -> str:
        """The partition of the jobs."""
        site = self.settings.site
        return site.part_nodes if self.grain.unit else site.partitions[0]

    def request(self, kind: Kind) -> Request:
        """The request of such a job's user."""
        lease, grain = self.settings.lease, self.grain
        return Request(
            kind.min_nodes // grain.per,
            kind.max_nodes // grain.per,
            fragments=grain.fragments(kind),
            lease=timedelta(seconds=lease.length_s),
            shortest_hole=timedelta(seconds=lease.shortest_hole_s),
            unit=grain.unit or 1,
            excluded=frozenset(),
            slot=grain.slot,
            core=self.core,
            lane=self.partition if self.core else "",
        )


def name_of(node: int) -> str:
    """The name of a node."""
    return f"n{node}"


def number_of(name: str) -> int:
    """The node of that name."""
    return int(name[1:])


class Member(Running):
    """A job that shares the nodes now."""

    def __init__(
        self, number: int, kind: Kind, now: float, checkpoint_s: float, terms: Terms
    ) -> None:
        super().__init__(number, kind, now, checkpoint_s, terms.core * terms.grain.per)
        self.leases: dict[int, float] = {}  # the end of the lease of each element that runs
        self._slots: dict[int, int] = {}  # how many each of those has
        self._terms = terms
        self._request = terms.request(kind)
        self._fragments = [self._unborn(index) for index in range(self._request.fragments)]
        for index in range(terms.core):
            self._fragments[index] = self._in_core(index)
        if self.core:
            self.pause(Pause.NONE, 0.0)
        self._job: Optional[MalleableJob] = None
        self._lease_end: Optional[float] = None
        self._noted: Optional[frozenset[float]] = None

    def _unborn(self, index: int) -> Fragment:
        return Fragment(
            FragmentId(self.number, index),
            FragmentState.HELD,
            Mark(self._request),
            has_agent=True,
            loss_s=self.loss_s,
            redoes=self._terms.redoes,
            lane=self._terms.partition,
        )

    def _in_core(self, index: int) -> Fragment:
        return replace(
            self._unborn(index),
            state=FragmentState.RUNNING,
            nodes=frozenset({f"core{self.number}-{index}"}),
            start=self._terms.calendar.at(self.entered_s),
            said=Said.TRAINED,
            lane=OTHERS,
        )

    @property
    def size(self) -> int:
        """Slots of nodes that its elements have, with its core."""
        return self.core + sum(self._slots.values())

    @property
    def curve(self) -> Curve:
        """Its scaling by the units of its request."""
        return self._terms.grain.curve(self.kind)

    @property
    def oldest_s(self) -> float:
        """The start of the element that has run the longest."""
        start = self._fragments[0 if self.core else next(iter(self.leases))].start
        assert start is not None
        return self._terms.calendar.seconds(start)

    @property
    def job(self) -> MalleableJob:
        """The job as a tick sees it."""
        if self._job is None:
            self._job = MalleableJob(
                self.number,
                USER,
                self._terms.partition,
                self._request,
                tuple(self._fragments),
                submitted=self._terms.calendar.at(self.entered_s),
            )
        return self._job

    @property
    def lease_end(self) -> float:
        """The first end of its leases, infinite without a lease."""
        if self._lease_end is None:
            self._lease_end = min(self.leases.values(), default=math.inf)
        return self._lease_end

    @property
    def noted(self) -> frozenset[float]:
        """The times at which fragments were asked to leave, put back or requeued, if they count."""
        if self._noted is None:
            self._noted = frozenset(self._moments())
        return self._noted

    def _moments(self) -> Iterator[float]:
        calendar, wait = self._terms.calendar, self._terms.slurm.requeue_wait
        for fragment in self._fragments:
            if fragment.mark.noticed is not None:
                yield calendar.seconds(fragment.mark.noticed)
            if fragment.eligible is not None:
                yield calendar.seconds(fragment.eligible - wait)

    def node(self, index: int) -> Optional[int]:
        """The node of an element that runs."""
        fragment = self._fragments[index]
        runs = fragment.state is FragmentState.RUNNING
        return number_of(next(iter(fragment.nodes))) if runs else None

    def mark(self, index: int, mark: Mark) -> None:
        """Write the mark of an element."""
        self._change(index, mark=mark)

    def begin(self, grow: Intent, now: float) -> None:
        """Start an element as planned."""
        start = self._terms.calendar.at(now)
        self.leases[grow.fragment.index] = now + grow.limit.total_seconds()
        self._slots[grow.fragment.index] = grow.size * self._terms.grain.per
        self._change(
            grow.fragment.index,
            state=FragmentState.RUNNING,
            mark=grow.mark,
            nodes=grow.nodes,
            start=start,
            end=start + grow.limit,
            limit=grow.limit,
            eligible=None,
            said=Said.TRAINED,
            lane=grow.lane or self._fragments[grow.fragment.index].lane,
            **({"asks": grow.asks} if grow.is_resized else {}),
        )

    def renew(self, index: int, end_s: float) -> None:
        """Set the end of an element's lease."""
        if index in self.leases:
            self.leases[index] = end_s
            self._change(index, end=self._terms.calendar.at(end_s))

    def stop(self, index: int, now: float, said: Said = Said.TRAINED) -> None:
        """Requeue an element, as its agent or Slurm does, and hold it again."""
        self._leave(index)
        moment = self._terms.calendar.at(now)
        self._requeue(
            index, end=moment, eligible=moment + self._terms.slurm.requeue_wait, said=said
        )

    def expire(self, index: int, now: float) -> None:
        """End an element at the end of its lease, as Slurm does."""
        self._leave(index)
        self._change(index, state=FragmentState.TIMED_OUT, end=self._terms.calendar.at(now))

    def _leave(self, index: int) -> None:
        del self.leases[index], self._slots[index]

    def put_back(self, index: int) -> None:
        """Requeue an element that has ended, as a tick does."""
        self._requeue(index)

    def _requeue(self, index: int, **news: Any) -> None:
        restarts = self._fragments[index].restarts + 1
        state = FragmentState.HELD
        self._change(index, state=state, nodes=frozenset(), restarts=restarts, **news)

    def _change(self, index: int, **news: Any) -> None:
        self._fragments[index] = replace(self._fragments[index], **news)
        self._job = self._lease_end = self._noted = None
