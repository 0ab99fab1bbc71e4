"""A job in a preemptible lane of a recorded machine, where only Slurm decides who has which node.

An element starts on idle nodes. Where Slurm plans the start of an ordinary job, the element's limit
must end before it (tried on 22.05.8). So a start needs a hole that fits the limit if the job that
ends the hole is in the queue by then. Slurm plans by the limits of jobs, and most jobs end before,
so real holes look longer to it than these.

Logs without node names were played with ordinary jobs on the lowest free nodes. Slurm gives them
nodes without elements first, so elements take the highest.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from parts.replay_runs import MEASURED

from slurm_hooks.allocation.curves import prior
from slurm_hooks.elastic.selfservice import upkeep
from slurm_hooks.replay.record import Interval, Record
from slurm_hooks.replay.running import Ledger, Pause, Running
from slurm_hooks.replay.work import kind

HELD_S = 121.0  # Slurm keeps a requeued job back (docs/users/without-installation.md)
WOKEN_S = 10.0  # until the elements that run end that
COLD_S = 10.0  # a program's first step, where nothing of it runs
LOSS_S = 0.5  # without a step after a SIGKILL (docs/lab/2026-11-20-resize.md)
TAKE, JOIN, LEAVE, WAKE = range(4)  # in this order at a moment


class Rules(NamedTuple):
    """A job of `elements` elements of `width` nodes, each with a limit of `lease_s`. Elements of a
    malleable job leave before their limit, and wake each other. An ordinary job loses the work
    since its checkpoint at its limit, and starts again.
    """

    elements: int
    width: int
    lease_s: float
    is_malleable: bool = True


class Costs(NamedTuple):
    """A loss repeats the work since the last of the checkpoints, which are `checkpoint_s` apart.
    With `redoes` a planned change does so too.
    """

    checkpoint_s: float
    redoes: bool = False


KEEPS = Costs(1.0)  # frameworks, and Checkpoint.watch (docs/users/checkpoints.md)
FILES = Costs(300.0, redoes=True)
JOB = kind("light", prior(max_nodes=64), (1, 16), 1e12)  # no job ends


class Tally:
    """The work of a job from its sizes. `changes` of size were planned, `losses` were not, and
    `gone` counts the times at which no element was left. Without `is_gang` a loss ends nothing but
    the elements that are lost.
    """

    def __init__(self, record: Record, costs: Costs, is_gang: bool = False) -> None:
        self.changes = self.losses = self.gone = 0
        self.ledger = Ledger()
        self._job = Running(1, JOB, record.from_s, costs.checkpoint_s)
        self._costs, self._is_gang, self._record = costs, is_gang, record

    def change(self, now: float, size: int, is_lost: bool, has_grown: bool) -> None:
        """The job has `size` nodes from now on."""
        before, job = self._job.size, self._job
        job.advance(now, self.ledger)
        job.nodes = dict.fromkeys(range(size), now)
        self.changes += not is_lost
        self.losses += is_lost
        self.gone += before > 0 and not size
        if is_lost or self._costs.redoes:
            job.forget(before, self.ledger)
        else:
            job.save()
        if not before or (is_lost and self._is_gang):
            job.pause(Pause.GROW, COLD_S)
        elif is_lost:
            job.pause(Pause.LOSS, LOSS_S)
        else:
            job.pause(Pause.GROW, MEASURED.up_s if has_grown else MEASURED.down_s)

    @property
    def steps_a_day(self) -> float:
        """Of steps that a single node makes in a second, when the record has ended."""
        self._job.advance(self._record.to_s, self.ledger)
        work = sum(self.ledger.images.values()) / JOB.rates[1]
        return work / self._record.window_s * 86_400


@dataclass
class Element:
    """Its nodes while it runs. `start` counts its starts."""

    number: int
    nodes: tuple[int, ...] = ()
    eligible_s: float = 0.0
    start: int = 0


class Lane:
    """A run over the record. `tally` has its result."""

    def __init__(self, record: Record, rules: Rules, costs: Costs) -> None:
        self.tally = Tally(record, costs, not rules.is_malleable)
        self._record, self._rules = record, rules
        self._elements = [Element(n) for n in range(rules.elements)]
        self._idle: dict[int, Interval] = {}  # without an element of ours
        self._on: dict[int, Element] = {}
        self._intervals: dict[int, Interval] = {}
        self._dice = random.Random(1)
        self._events = list(_events(record))
        heapq.heapify(self._events)

    def run(self) -> Tally:
        """Play the whole record."""
        while self._events and self._events[0][0] < self._record.to_s:
            now = self._events[0][0]
            is_lost = has_left = False
            while self._events and self._events[0][0] == now:
                _, what, number, count = heapq.heappop(self._events)
                is_lost |= what == TAKE and self._take(number, now)
                has_left |= what == LEAVE and self._leave(self._elements[number], count, now)
                if what == JOIN:
                    self._join(self._record.intervals[count])
            has_grown = self._start(now)
            is_lost |= has_left and not self._rules.is_malleable
            if is_lost or has_left or has_grown:
                self.tally.change(now, len(self._on), is_lost, has_grown)
        return self.tally

    def _join(self, interval: Interval) -> None:
        self._intervals[interval.node] = self._idle[interval.node] = interval

    def _take(self, node: int, now: float) -> bool:
        """Others take the node."""
        element = self._on.get(node)
        if element:
            self._free(element, now)
            self._requeue(element, now)
        del self._idle[node], self._intervals[node]
        return element is not None

    def _leave(self, element: Element, start: int, now: float) -> bool:
        if not element.nodes or element.start != start:
            return False
        self._free(element, now)
        self._requeue(element, now, HELD_S if self._rules.is_malleable else 0.0)
        return True

    def _free(self, element: Element, now: float) -> None:
        for node in element.nodes:
            del self._on[node]
            self._idle[node] = self._intervals[node]
        element.nodes = ()

    def _requeue(self, element: Element, now: float, held_s: float = HELD_S) -> None:
        is_woken = self._rules.is_malleable and self._on
        element.eligible_s = now + (WOKEN_S if is_woken else held_s)
        heapq.heappush(self._events, (element.eligible_s, WAKE, element.number, 0))

    def _start(self, now: float) -> bool:
        """Start what can be started. Tell whether anything was."""
        waiting = [e for e in self._elements if not e.nodes and e.eligible_s <= now]
        if not waiting:
            return False
        until = now + self._rules.lease_s
        fit = sorted(n for n, i in self._idle.items() if i.known_s > now or i.end_s >= until)
        width = self._rules.width
        for element in waiting[: len(fit) // width]:
            element.nodes = tuple(fit[-width:])
            del fit[-width:]
            element.start += 1
            for node in element.nodes:
                self._on[node] = element
                del self._idle[node]
            event = (self._leaves_at(until), LEAVE, element.number, element.start)
            heapq.heappush(self._events, event)
        return any(element.nodes for element in waiting)

    def _leaves_at(self, until: float) -> float:
        lease_s = self._rules.lease_s
        is_ours = self._rules.is_malleable
        return upkeep.leave_at(until, lease_s, self._dice.random()) if is_ours else until


def _events(record: Record) -> Iterator[tuple[float, int, int, int]]:
    for place, interval in enumerate(record.intervals):
        yield interval.start_s, JOIN, interval.node, place
        if interval.end_s < record.to_s:
            yield interval.end_s, TAKE, interval.node, 0
