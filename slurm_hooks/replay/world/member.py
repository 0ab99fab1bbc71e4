"""A malleable job of the recorded machine, with the fragments that Slurm would show.

A fragment that leaves, or that Slurm preempts, is held again at once: Slurm lets it wait from then
on. Its agent has told from the first moment on what a hit costs.
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
    """What is the same for the fragments of all jobs.

    Without manners, no part of a node leaves because others could pack their jobs better then. Each
    job has a core of `core` nodes, which run from its first moment on and are in no record.
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
        """The partitions of all nodes. Those of others count for jobs that have parts of nodes."""
        others = (OTHERS,) if self.grain.unit and self.has_manners else ()
        return frozenset((*self.settings.site.partitions, *others))

    @property
    def partition(self) -> str:
        """Where the jobs are."""
        site = self.settings.site
        return site.part_nodes if self.grain.unit else site.partitions[0]

    def request(self, kind: Kind) -> Request:
        """What the user of such a job asked for."""
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
    """A job among those that share the nodes now."""

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
        """How it scales, by what its request counts."""
        return self._terms.grain.curve(self.kind)

    @property
    def oldest_s(self) -> float:
        """When the element came that has run the longest."""
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
        """When the first of its leases ends; infinite if it has none."""
        if self._lease_end is None:
            self._lease_end = min(self.leases.values(), default=math.inf)
        return self._lease_end

    @property
    def noted(self) -> frozenset[float]:
        """When fragments were asked to leave, put back or requeued, as far as that counts."""
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
        """An element starts as it was planned."""
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
            **({"asks": grow.asks} if grow.is_resized else {}),
        )

    def renew(self, index: int, end_s: float) -> None:
        """The lease of an element ends then."""
        if index in self.leases:
            self.leases[index] = end_s
            self._change(index, end=self._terms.calendar.at(end_s))

    def stop(self, index: int, now: float, said: Said = Said.TRAINED) -> None:
        """An element is requeued by its agent, or by Slurm, and is held again."""
        self._leave(index)
        moment = self._terms.calendar.at(now)
        self._requeue(
            index, end=moment, eligible=moment + self._terms.slurm.requeue_wait, said=said
        )

    def expire(self, index: int, now: float) -> None:
        """Slurm ends an element at the end of its lease."""
        self._leave(index)
        self._change(index, state=FragmentState.TIMED_OUT, end=self._terms.calendar.at(now))

    def _leave(self, index: int) -> None:
        del self.leases[index], self._slots[index]

    def put_back(self, index: int) -> None:
        """A tick requeues an element that has ended."""
        self._requeue(index)

    def _requeue(self, index: int, **news: Any) -> None:
        restarts = self._fragments[index].restarts + 1
        state = FragmentState.HELD
        self._change(index, state=state, nodes=frozenset(), restarts=restarts, **news)

    def _change(self, index: int, **news: Any) -> None:
        self._fragments[index] = replace(self._fragments[index], **news)
        self._job = self._lease_end = self._noted = None
