"""The cluster as a tick sees it: nodes, their holes, the claims of other jobs, malleable jobs.

Times are zoned datetimes, durations timedeltas. Constructors refuse values that cannot exist.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Optional

from slurm_hooks.model.job import MalleableJob
from slurm_hooks.model.resources import NO_RESOURCES, Gres, Resources
from slurm_hooks.model.speed import Curve, Learned


class NodeState(enum.Enum):
    """The use that a node can be put to, folded from Slurm's base state and flags."""

    FREE = "free"  # idle and healthy
    SHARED = "shared"  # some of it is allocated, some is not
    BUSY = "busy"  # allocated, or about to be free: nothing more starts there
    LEAVING = "leaving"  # an admin drains it or wants to reboot it: to be given back at once
    DOWN = "down"  # not usable now: down, powered off, in maintenance
    UNKNOWN = "unknown"  # a state this version does not know: left alone


IN_SERVICE = (NodeState.FREE, NodeState.SHARED, NodeState.BUSY)
"""States in which a node is idle or has jobs."""


@dataclass(frozen=True)
class Node:
    """A compute node. `raw_state` is Slurm's own text, for people to read.

    Its resources are those that jobs could have, without the share of the node's own system. `used`
    is the allocated part. `idle_since` is the end of its last job, or None if it is unknown.
    `switch` is its leaf switch or block, empty where Slurm has no topology.
    """

    name: str
    state: NodeState
    partitions: frozenset[str]
    features: frozenset[str] = frozenset()
    cpus: int = 1
    memory_mib: int = 0
    gres: Gres = ()  # generic resources, `gpu` and `gpu:a100` alike
    raw_state: str = ""
    used: Resources = NO_RESOURCES
    idle_since: Optional[datetime] = None
    switch: str = ""

    @cached_property
    def total(self) -> Resources:
        return Resources(self.cpus, self.memory_mib, self.gres)

    @cached_property
    def free(self) -> Resources:
        """The resources that a job could get now. They are empty where no job can start."""
        if self.state not in (NodeState.FREE, NodeState.SHARED):
            return Resources()
        return self.total - self.used


@dataclass(frozen=True)
class PlannedStart:
    """A pending job of other users for which Slurm has planned a start on named nodes.

    It `preempts` fragments there, unless it waits in a lane itself.
    """

    job_id: str
    start: datetime
    nodes: frozenset[str]
    preempts: bool = True


@dataclass(frozen=True)
class OtherStart:
    """A job of other users that started lately, and its nodes."""

    job_id: str
    start: datetime
    nodes: frozenset[str]
    partition: str = ""


class Counted(enum.Enum):
    """The owner of the running jobs that a limit of the accounting database counts."""

    ACCOUNT = "all of the account"
    USER = "the user's in the account"
    QOS = "all with the QOS"
    QOS_USER = "the user's with the QOS"
    QOS_ACCOUNT = "the account's with the QOS"


@dataclass(frozen=True)
class Waiter:
    """A job of other users that waits, because of a limit on running jobs or otherwise.

    `reason` is Slurm's. `counted` names the owner of the jobs that the limit counts. It is None if
    the job waits for something else now. `account` and `qos` are empty until a tick has asked.
    """

    job_id: str
    user: str
    reason: str
    counted: Optional[Counted] = None
    account: str = ""
    qos: str = ""


@dataclass(frozen=True)
class Reservation:
    """Nodes that are promised from `start` to `end`."""

    name: str
    start: datetime
    end: datetime
    nodes: frozenset[str]

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"reservation {self.name} ends before it starts")


@dataclass(frozen=True)
class Slurm:
    """The few settings of slurmctld that the mechanism depends on."""

    version: tuple[int, ...]
    kill_wait: timedelta
    min_job_age: timedelta
    max_array_size: int
    max_job_count: int = 10_000
    requeue_wait: timedelta = timedelta(seconds=121)  # from a requeue to the next start
    appends: bool = False  # a requeued job adds to its output instead of emptying it
    enforces_qos: bool = False  # no user has a QOS that slurmdbd does not give
    preempts_by_qos: bool = False  # the QOS of a job decides, not its partition


GRACE_CHECK = timedelta(seconds=30)
"""How late Slurm may see that a grace or a time limit is over: PERIODIC_TIMEOUT of slurmctld."""


_OWNERS = {"MaxTRESPU": "user", "MaxTRESPA": "account", "GrpTRES": "all"}


@dataclass(frozen=True)
class Limit:
    """The most of a resource that the jobs of a QOS may have together, such as `MaxTRESPU=node=2`:
    the jobs of a user, of an account, or all of them."""

    qos: str
    name: str
    tres: str
    most: int

    @property
    def of(self) -> str:
        """Its jobs are those of a `user`, of an `account`, or `all`."""
        return _OWNERS[self.name]


@dataclass(frozen=True)
class Terms:
    """The rules by which Slurm preempts in a partition of malleable jobs, and its limits there.

    For `exempt` after its start a job there keeps its nodes from every other job. After it was
    preempted it keeps them for `grace` and KillWait. `most` is the time limit of the partition.
    """

    partition: str
    grace: timedelta = timedelta(0)
    exempt: timedelta = timedelta(0)
    most: Optional[timedelta] = None
    limits: tuple[Limit, ...] = ()

    @property
    def is_at_once(self) -> bool:
        """True if Slurm preempts here without grace, from the start of a job on."""
        return not self.grace and not self.exempt

    def longest_wait(self, kill_wait: timedelta, lease: timedelta) -> timedelta:
        """The longest time that a job which may preempt waits for a node of a fragment here. It
        counts from the scheduler's pass that wants the node. No fragment outlives its `lease`."""
        held = min(self.exempt + self.grace, lease)
        is_preempted_first = not self.grace and self.exempt <= lease
        late = timedelta(0) if is_preempted_first else GRACE_CHECK
        return held + late + kill_wait


@dataclass(frozen=True)
class Off:
    """A switch that is set: since when, why, and by which user."""

    since: datetime
    reason: str = ""


@dataclass(frozen=True)
class Snapshot:
    """The cluster at a moment, as far as it matters here.

    * `unknown`: a line for each part of Slurm's answer that could not be understood. Its subject
      appears in no other field.
    * `records`: the number of jobs that slurmctld remembers.
    * `started`: other users' jobs that started lately.
    * `off`: set while malleable jobs are switched off.
    * `waiting`: other users' jobs that wait because of a limit on running jobs, and those for which
      a fragment has left, as long as they wait.
    * `curves`, `learned`: by job id. Curves are known from elsewhere and win over learned values.
    * `hidden`: nodes of partitions that Slurm does not show: powered down in a cloud, or FUTURE.
    * `registering`: nodes in service that have not yet told slurmctld, since its start, which jobs
      they run.
    * `no_parts`: a line for each of Slurm's settings that forbids parts of nodes.
    * `terms`: the terms of each partition of malleable jobs.
    * `no_growth`: true while no job may grow.
    * `without_qos`: jobs whose users may not use the QOS of malleable jobs.
    """

    now: datetime
    slurm: Slurm
    nodes: tuple[Node, ...]
    jobs: tuple[MalleableJob, ...]
    planned: tuple[PlannedStart, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    curves: dict[int, Curve] = field(default_factory=dict)
    learned: dict[int, Learned] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    records: int = 0
    started: tuple[OtherStart, ...] = ()
    off: Optional[Off] = None
    waiting: tuple[Waiter, ...] = ()
    hidden: frozenset[str] = frozenset()
    registering: frozenset[str] = frozenset()
    no_parts: tuple[str, ...] = ()
    terms: tuple[Terms, ...] = ()
    no_growth: Optional[Off] = None
    without_qos: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.now.tzinfo is None:
            raise ValueError("a snapshot needs a zoned time")


class ClaimKind(enum.Enum):
    """The kind of claim that ends a hole."""

    RESERVATION = "reservation"
    PLANNED = "planned start"
    IN_LANE = "planned start in the lane"  # its job cannot preempt a fragment
    NOBODY = "nobody"


@dataclass(frozen=True)
class Claim:
    """The claim of others on a node, from `start` on. None: no claim is known.

    `by` names the reservation or job.
    """

    start: Optional[datetime] = None
    kind: ClaimKind = ClaimKind.NOBODY
    by: str = ""


UNCLAIMED = Claim()
