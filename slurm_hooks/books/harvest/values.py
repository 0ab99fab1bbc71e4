"""What is remembered of a tick, and what is derived from two that follow each other.

Moments are zoned datetimes; spans end in `_s` and are seconds, `node_s` is nodes times seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.model import FragmentId, Terms, Why
from slurm_hooks.model.job import NODE
from slurm_hooks.model.unused import Unused

INTERRUPTIONS = frozenset({Why.PREEMPTED, Why.NODE_FAILED, Why.DIED})
"""Ends that no tick planned and no user wished."""


@dataclass(frozen=True)
class SeenRun:
    """One fragment as a tick saw and left it. `restarts` numbers its run; `nodes` is empty while it
    waits; `leaves` is the value of the `Why` if it was asked to go. Of each node it has a `part`, 1
    if its job counts nodes."""

    fragment: FragmentId
    restarts: int
    nodes: frozenset[str] = frozenset()
    start: Optional[datetime] = None
    end: Optional[datetime] = None
    leaves: str = ""
    part: float = 1


@dataclass(frozen=True)
class Promise:
    """The first start that Slurm published for somebody's pending job, and for how long one of our
    fragments has been on a node of its plan since then."""

    job_id: str
    start: datetime
    held_s: float = 0.0


@dataclass(frozen=True)
class LaneWait:
    """A partition of malleable jobs that gives no node at once: its terms, KillWait, and how long a
    lease is at most."""

    terms: Terms
    kill_wait: timedelta
    lease: timedelta


@dataclass(frozen=True)
class Seen:
    """All that the next tick needs of this one."""

    at: datetime
    runs: tuple[SeenRun, ...] = ()
    idle: tuple[tuple[Why, int], ...] = ()
    promises: tuple[Promise, ...] = ()
    unused: tuple[tuple[str, Unused], ...] = ()
    lanes: tuple[LaneWait, ...] = ()


@dataclass(frozen=True)
class Ending:
    """The end of one run: when, how, and what it had used since its start. The moment is exact if
    Slurm said it, else the middle of the interval in which it must lie. A job of somebody else in
    the partition `taker` began on the nodes `taken`, as far as that is known."""

    fragment: FragmentId
    at: datetime
    kind: Why
    cause: str
    nodes: float
    ran_s: float
    is_exact: bool
    taken: frozenset[str] = frozenset()
    taker: str = ""

    @property
    def is_interruption(self) -> bool:
        """True if neither a tick nor the user wanted it."""
        return self.kind in INTERRUPTIONS

    @property
    def node_s(self) -> float:
        """What the run had used; work since its last checkpoint is some unknown part of it."""
        return self.nodes * self.ran_s


@dataclass(frozen=True)
class Delay:
    """A job of somebody else that started later than Slurm had first published, and how much of
    that one of our fragments spent on a node of its plan: what we can have caused, at most."""

    job_id: str
    planned: datetime
    started: datetime
    held_s: float

    @property
    def late_s(self) -> float:
        """How much later it started, for whatever reason."""
        return (self.started - self.planned).total_seconds()


@dataclass(frozen=True)
class JobFacts:
    """One malleable job in one tick: whose it is, its size, and what it used since the last. All
    its sizes count `unit`."""

    job_id: int
    user: str
    min_nodes: int
    max_nodes: int
    engine: str
    nodes: int
    node_s: float
    releases: int
    over: Optional[Why] = None  # once it has ended
    stop: str = ""  # the word in its marks, if it was stopped
    unit: str = NODE


@dataclass(frozen=True)
class Forgotten:
    """A job that Slurm does not list any more: what it used since the last tick, and how it must
    have ended."""

    job_id: int
    node_s: float
    how: Why


@dataclass(frozen=True)
class NodeCounts:
    """Nodes of the malleable partitions: ours, others', and those out of service. A part of a node
    that is ours counts as that, and its rest as others'."""

    total: int
    ours: float
    busy: float
    out: int


@dataclass(frozen=True)
class Cost:
    """What the tick itself took."""

    seconds: float
    solver_s: float
    commands: int
    rpcs: int
    refused: int


@dataclass(frozen=True, order=True)
class Done:
    """What a tick did to so many fragments: the first of `Intent.parts`, and the value of a `Why`.

    A fragment counts once, with the weightiest part: a hold that comes with a renewal is a hold.
    """

    verb: str
    cause: str
    fragments: int


@dataclass(frozen=True)
class Record:
    """One tick for the ledger.

    `span_s` is the time since the last one, of which `unseen_s` was too long ago to say why nodes
    were idle. `uncertain_node_s` is the part of what was used that rests on an end whose moment
    Slurm did not say. `idle` is reason, nodes now, node-seconds since the last tick. `whys` are
    the reasons of jobs' sizes, each with the number of jobs that have it. `forgotten` are jobs that
    the last tick saw and Slurm lists no more, with what they used since. `unused` is resource, what
    no job uses of it now, and how much of it times seconds no job used since the last tick.
    `no_growth_s` is for how long the site has wanted no growth, 0 if it does not. `core_node_s` are
    the node-seconds of cores since the last tick: they had their nodes from the ordinary queue.
    """

    at: datetime
    span_s: float
    unseen_s: float
    uncertain_node_s: float
    nodes: NodeCounts
    cost: Cost
    jobs: tuple[JobFacts, ...]
    endings: tuple[Ending, ...]
    delays: tuple[Delay, ...]
    starts: int  # of others' jobs whose start had been published, late or not
    idle: tuple[tuple[Why, int, float], ...]
    done: tuple[Done, ...]
    whys: tuple[tuple[Why, int], ...]
    forgotten: tuple[Forgotten, ...]
    seen: Seen
    unused: tuple[tuple[str, Unused, Unused], ...] = ()
    no_growth_s: float = 0.0
    core_node_s: float = 0.0

    @property
    def node_s(self) -> float:
        """What all jobs used since the last tick."""
        return sum(job.node_s for job in self.jobs) + sum(job.node_s for job in self.forgotten)
