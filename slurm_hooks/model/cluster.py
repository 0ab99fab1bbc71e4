"""The cluster as one tick sees it: nodes, reservations, malleable jobs and their fragments.

Times are zoned datetimes, durations timedeltas. Constructors refuse values that cannot exist.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.engines import DEFAULT


class NodeState(enum.Enum):
    """What a node can be used for, folded from Slurm's base state and flags."""

    FREE = "free"  # idle and healthy
    BUSY = "busy"  # allocated to some job
    LEAVING = "leaving"  # an admin drains it or wants to reboot it: to be given back at once
    DOWN = "down"  # not usable now: down, powered off, in maintenance
    UNKNOWN = "unknown"  # a state this version does not know: left alone


@dataclass(frozen=True)
class Node:
    """One compute node; `raw_state` is Slurm's own text, for people to read."""

    name: str
    state: NodeState
    partitions: frozenset[str]
    features: frozenset[str] = frozenset()
    cpus: int = 1
    memory_mib: int = 0
    gres: tuple[tuple[str, int], ...] = ()  # generic resources, `gpu` and `gpu:a100` alike
    raw_state: str = ""


@dataclass(frozen=True)
class PlannedStart:
    """A pending job of somebody else for which Slurm has planned a start on named nodes."""

    job_id: str
    start: datetime
    nodes: frozenset[str]


@dataclass(frozen=True)
class Reservation:
    """Nodes promised to somebody from `start` to `end`."""

    name: str
    start: datetime
    end: datetime
    nodes: frozenset[str]

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"reservation {self.name} ends before it starts")


@dataclass(frozen=True)
class Request:
    """What the user asked for and the site accepted: `--malleable=MIN-MAX,unit=N,engine=NAME`.

    `lease` is the longest lease of one fragment (`--time`), `shortest_hole` the shortest hole
    worth starting in (`--time-min`), `fragments` the number of array elements.
    """

    min_nodes: int
    max_nodes: int
    fragments: int
    lease: timedelta
    shortest_hole: timedelta
    unit: int = 1
    engine: str = DEFAULT
    launch: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.min_nodes <= self.max_nodes:
            raise ValueError(f"sizes {self.min_nodes}-{self.max_nodes} are not a range")
        if self.unit < 1 or self.min_nodes % self.unit or self.max_nodes % self.unit:
            raise ValueError(f"sizes {self.min_nodes}-{self.max_nodes} do not fit unit {self.unit}")
        if self.fragments < 1 or self.lease <= timedelta(0):
            raise ValueError("a request needs a fragment and a lease")


@dataclass(frozen=True)
class Needs:
    """What the job's own options ask of each node; zero and empty ask nothing.

    `features` is the text of --constraint. `memory_mib` and `cpus` are lower bounds: a job that
    asks for them by task or by processor may need more, which Slurm then says (BadConstraints).
    """

    features: str = ""
    memory_mib: int = 0
    cpus: int = 0
    gres: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, order=True)
class Grudge:
    """A node that a job keeps away from for a while, and since when."""

    node: str
    since: datetime


@dataclass(frozen=True)
class Mark:
    """What AdminComment says of one fragment: the accepted request and our notes on it.

    `released` is when the fragment was last released into a hole, and `run` its restart count then:
    a higher one tells that it has run since. `noticed` is when it was last asked to leave, put back
    or found dead, `failures` how often in a row the job had failed by then, `gone` how many
    elements of the job were no more. `deaths` are nodes on which this fragment died, `unfit` those
    that Slurm says do not fit it. `vain` counts the releases in a row after which it did not start,
    `obstacle` is Slurm's reason for the last one. `priority` is what Slurm gave the job before it
    was held. `is_paused` is true while an operator holds the job, `is_alone` if its fragments do
    not meet, `is_finished` once its training has ended: who told so may be forgotten first.
    """

    request: Request
    released: Optional[datetime] = None
    run: int = 0
    noticed: Optional[datetime] = None
    failures: int = 0
    gone: int = 0
    deaths: tuple[Grudge, ...] = ()
    unfit: tuple[Grudge, ...] = ()
    vain: int = 0
    obstacle: str = ""
    priority: int = 0
    is_alone: bool = False
    is_paused: bool = False
    is_finished: bool = False
    stopped: str = ""


class FragmentState(enum.Enum):
    """Where a fragment is in its life, as Slurm tells it."""

    HELD = "held"  # pending, priority 0: waits for us
    PENDING = "pending"  # released, or requeued by Slurm: may start any moment
    RUNNING = "running"
    SUSPENDED = "suspended"  # stopped by an operator, and still on its nodes
    ENDING = "ending"  # completing: its processes are on their way out
    DONE = "done"  # exit code 0
    TIMED_OUT = "timed out"  # its lease ended, or Slurm took it for somebody else
    FAILED = "failed"  # any other end that is not the user's wish
    LOST = "lost"  # its node failed
    SPECIAL = "special exit"  # an exit code for which Slurm itself puts jobs back and holds them
    CANCELLED = "cancelled"  # by its user, or past the --deadline that he gave
    UNKNOWN = "unknown"  # a state this version does not know: left alone


ENDED_STATES = frozenset(
    {
        FragmentState.DONE,
        FragmentState.TIMED_OUT,
        FragmentState.FAILED,
        FragmentState.LOST,
        FragmentState.CANCELLED,
    }
)
WAITING_STATES = frozenset({FragmentState.HELD, FragmentState.SPECIAL})
ON_NODES = frozenset(FragmentState) - ENDED_STATES - WAITING_STATES
"""States in which a fragment is on its nodes, on its way there, or may be."""


class Said(enum.Enum):
    """What the agent of a fragment says of the current run; a script without one says nothing."""

    NOTHING = "nothing"
    STARTED = "started"  # an agent runs, and looks for the others
    JOINED = "joined"  # it takes part in a round
    TRAINED = "trained"  # and its training has made progress
    LEAVING = "leaving"  # it is about to put itself back
    FINISHED = "finished"  # the round said that the training is over


@dataclass(frozen=True, order=True)
class FragmentId:
    """An array element, written JOB_INDEX."""

    job_id: int
    index: int

    def __str__(self) -> str:
        return f"{self.job_id}_{self.index}"


@dataclass(frozen=True)
class Fragment:
    """One element of a malleable job's array.

    `start` and `end` belong to the current (or last) run; `end` of a running fragment is the end
    of its lease. `limit` is the time limit that Slurm enforces, `eligible` the moment before which
    Slurm does not start it. `priority` is 0 for what is held, running or not. `said` is what its
    agent says of this run, or of the last one if it waits; `has_agent` is true if one ever spoke.
    `depends` is true while other jobs must end first.
    """

    id: FragmentId
    state: FragmentState
    mark: Mark
    nodes: frozenset[str] = frozenset()
    start: Optional[datetime] = None
    end: Optional[datetime] = None
    limit: Optional[timedelta] = None
    eligible: Optional[datetime] = None
    restarts: int = 0
    exit_code: str = ""
    reason: str = ""  # why it waits, in Slurm's words
    priority: int = 0
    said: Said = Said.NOTHING
    has_agent: bool = False
    depends: bool = False
    note: str = ""  # the rest of AdminComment, which belongs to the site

    @property
    def is_leaving(self) -> bool:
        """True once notice was given for the current run."""
        return self.mark.noticed is not None

    @property
    def is_active(self) -> bool:
        """True while it runs and has not been asked to leave."""
        return self.state is FragmentState.RUNNING and not self.is_leaving

    @property
    def is_training(self) -> bool:
        """True while it runs and its training has made progress in this run."""
        return self.is_active and self.said is Said.TRAINED

    @property
    def has_run(self) -> bool:
        """True if it has run since it was last released."""
        return self.mark.released is not None and self.restarts > self.mark.run

    @property
    def is_paused(self) -> bool:
        """True if an operator holds it: what we hold is held as its user would."""
        return self.reason == "JobHeldAdmin"


@dataclass(frozen=True)
class MalleableJob:
    """All fragments of one array that could be read, in order of their index.

    `unread` counts the others; `is_cut` is true if Slurm shows those that never ran as cancelled.
    """

    job_id: int
    user: str
    partition: str
    request: Request
    fragments: tuple[Fragment, ...]
    submitted: Optional[datetime] = None
    needs: Needs = Needs()
    unread: int = 0
    is_cut: bool = False

    @property
    def active(self) -> tuple[Fragment, ...]:
        """The fragments that train now."""
        return tuple(f for f in self.fragments if f.is_active)

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes of the active fragments."""
        return frozenset(n for f in self.active for n in f.nodes)

    @property
    def failures(self) -> int:
        """How often in a row this job has failed."""
        return max((f.mark.failures for f in self.fragments), default=0)

    @property
    def priority(self) -> int:
        """The highest that Slurm gives, or gave, any of its fragments; 0 if none was released."""
        return max((max(f.priority, f.mark.priority) for f in self.fragments), default=0)

    @property
    def has_agent(self) -> bool:
        """True once an agent of this job has spoken: then an exit code alone means nothing, and
        its fragments look for each other."""
        return any(f.has_agent for f in self.fragments)


@dataclass(frozen=True)
class Curve:
    """Throughput over node counts: linear between points, constant beyond the last.

    The first point is (0, 0). Values have any unit: the allocator uses them relative to the value
    at the job's smallest size.
    """

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        sizes = [n for n, _ in self.points]
        if not self.points or self.points[0] != (0, 0.0):
            raise ValueError("a curve starts at (0, 0.0)")
        if sizes != sorted(set(sizes)) or any(v < 0 for _, v in self.points):
            raise ValueError("a curve has growing sizes and no negative value")

    def __call__(self, nodes: float) -> float:
        """The throughput at `nodes`, in the curve's own unit."""
        last_n, last_v = self.points[0]
        for n, v in self.points[1:]:
            if nodes <= n:
                return last_v + (v - last_v) * (nodes - last_n) / (n - last_n)
            last_n, last_v = n, v
        return last_v


@dataclass(frozen=True)
class Slurm:
    """The few settings of slurmctld that the mechanism depends on."""

    version: tuple[int, ...]
    kill_wait: timedelta
    min_job_age: timedelta
    max_array_size: int
    max_job_count: int = 10_000
    requeue_wait: timedelta = timedelta(seconds=120)  # from a requeue to the next start
    appends: bool = False  # a requeued job adds to its output instead of emptying it


@dataclass(frozen=True)
class Snapshot:
    """The cluster at one moment, as far as it matters here.

    `unknown` holds one line for each thing in Slurm's answer that could not be understood; what
    it speaks of is in no other field. `records` counts the jobs that slurmctld remembers.
    """

    now: datetime
    slurm: Slurm
    nodes: tuple[Node, ...]
    jobs: tuple[MalleableJob, ...]
    planned: tuple[PlannedStart, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    curves: dict[int, Curve] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    records: int = 0

    def __post_init__(self) -> None:
        if self.now.tzinfo is None:
            raise ValueError("a snapshot needs a zoned time")


class HoleEnd(enum.Enum):
    """Who ends a hole."""

    RESERVATION = "reservation"
    PLANNED = "planned start"
    NOBODY = "nobody"


@dataclass(frozen=True)
class Hole:
    """A node usable from the snapshot's moment until `end` (None: nobody has claimed it).

    `by` names the reservation or job that ends the hole.
    """

    node: str
    end: Optional[datetime] = None
    source: HoleEnd = HoleEnd.NOBODY
    by: str = ""
