"""The memory of a tick, and values derived from two consecutive ticks.

Times are zoned datetimes. Names of spans in seconds end in `_s`. `node_s` is nodes times seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, Optional

from slurm_hooks.model import FragmentId, Terms, Why
from slurm_hooks.model.job import NODE
from slurm_hooks.model.unused import Unused

INTERRUPTIONS = frozenset({Why.PREEMPTED, Why.NODE_FAILED, Why.DIED})
"""Ends that neither a tick nor a user wanted."""


class SeenRun(NamedTuple):
    """A fragment on its nodes after a tick. `restarts` numbers its run. `leaves` is the value of a
    `Why` if it was asked to leave. `part` is its part of each node, 1 if its job counts nodes."""

    fragment: FragmentId
    restarts: int
    nodes: frozenset[str] = frozenset()
    start: Optional[datetime] = None
    end: Optional[datetime] = None
    leaves: str = ""
    part: float = 1


@dataclass(frozen=True)
class Promise:
    """The first start that Slurm published for another pending job, and the seconds since then that
    a fragment of ours was on a node of its plan."""

    job_id: str
    start: datetime
    held_s: float = 0.0


@dataclass(frozen=True)
class LaneWait:
    """The longest wait of another job for a node of a lane: the lane's terms, KillWait, and the
    longest lease. A lane that frees nodes at once has no such value. The report shows it. Plans use
    model.lane.Lane instead."""

    terms: Terms
    kill_wait: timedelta
    lease: timedelta


@dataclass(frozen=True)
class Seen:
    """The memory of a tick for the next tick. `waiting` has the restart counts of fragments without
    nodes, by job and index."""

    at: datetime
    runs: tuple[SeenRun, ...] = ()
    waiting: dict[int, dict[int, int]] = field(default_factory=dict)
    idle: tuple[tuple[Why, int], ...] = ()
    promises: tuple[Promise, ...] = ()
    unused: tuple[tuple[str, Unused], ...] = ()
    lanes: tuple[LaneWait, ...] = ()


@dataclass(frozen=True)
class Ending:
    """The end of a run: its time, its way, and the usage since its start. If Slurm did not give the
    time, it is the middle of the possible interval. Another job in the partition `taker` began on
    the nodes `taken`, if that is known."""

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
        """True if neither a tick nor the user wanted the end."""
        return self.kind in INTERRUPTIONS

    @property
    def node_s(self) -> float:
        """The usage of the run. Work since its last checkpoint is an unknown part of it."""
        return self.nodes * self.ran_s


@dataclass(frozen=True)
class Delay:
    """Another job that started later than Slurm had first published. For `held_s` a fragment of
    ours was on a node of its plan: we caused at most so much."""

    job_id: str
    planned: datetime
    started: datetime
    held_s: float

    @property
    def late_s(self) -> float:
        """The delay of its start, for any reason."""
        return (self.started - self.planned).total_seconds()


@dataclass(frozen=True)
class JobFacts:
    """A malleable job in a tick: its user, its size, and its usage since the last tick. All its
    sizes count `unit`."""

    job_id: int
    user: str
    min_nodes: int
    max_nodes: int
    nodes: int
    node_s: float
    releases: int
    over: Optional[Why] = None  # once it has ended
    stop: str = ""  # the word in its marks, if it was stopped
    unit: str = NODE


@dataclass(frozen=True)
class Forgotten:
    """A job that Slurm does not list any more: its usage since the last tick, and its probable
    end."""

    job_id: int
    node_s: float
    how: Why


@dataclass(frozen=True)
class Cost:
    """The cost of the tick itself."""

    seconds: float
    solver_s: float
    commands: int
    rpcs: int
    refused: int


@dataclass(frozen=True, order=True)
class Done:
    """An action of a tick on `fragments` fragments: the first of `Intent.parts`, and the value of a
    `Why`.

    A fragment counts once, with its weightiest part. A hold with a renewal counts as a hold.
    """

    verb: str
    cause: str
    fragments: int


class Event(NamedTuple):
    """An event of a kind, with a number that the report and the counters add up. The label divides
    the kind. `more` is JSON if the single event counts, and not only the sum. Such events of the
    same kind, label, job and time have different parts: the index of a fragment, or a hash."""

    name: str  # of the metric, without its prefix
    value: float
    label: str = ""
    job_id: int = 0
    at_s: float = 0.0  # 0: the time of the tick
    part: int = 0
    more: str = ""


@dataclass(frozen=True)
class Record:
    """A tick for the ledger.

    * `forgotten`: jobs that the last tick saw and Slurm lists no more.
    * `since`: events since the last tick, except usage, endings and delays.
    * `standing`: how things stand after the tick.
    * `seen`: the memory for the next tick.
    """

    at: datetime
    jobs: tuple[JobFacts, ...]
    endings: tuple[Ending, ...]
    delays: tuple[Delay, ...]
    forgotten: tuple[Forgotten, ...]
    since: tuple[Event, ...]
    standing: tuple[Event, ...]
    seen: Seen

    @property
    def node_s(self) -> float:
        """The usage of all jobs since the last tick."""
        return sum(job.node_s for job in self.jobs) + sum(job.node_s for job in self.forgotten)
