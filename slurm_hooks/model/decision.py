"""What one tick decides: actions on fragments, and the plan that holds them with its reasons."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Optional, Union

from slurm_hooks.model.job import FragmentId, Mark
from slurm_hooks.model.reason import Reason


class Level(enum.Enum):
    """How much a tick may do."""

    OFF = "off"  # fragments leave, nothing starts
    OBSERVE = "observe"  # it plans and writes nothing
    CANARY = "canary"  # only some jobs or nodes
    ON = "on"


class Cause(enum.Enum):
    """Why something is done to a fragment."""

    HOLE_OPEN = "hole open"
    HOLE_CLOSES = "hole closes"
    NODE_LEAVES = "node leaves service"
    BETTER_USE = "better use elsewhere"
    BELOW_MIN = "below the job's minimum"
    REMINDED = "was given notice"
    NOTICE_OVER = "notice is over"
    ALONE = "no fragment has joined a round"
    UNFIT = "Slurm finds the node unfit for it"
    PREEMPTED = "requeued by Slurm"
    SECURED = "comes back held if Slurm requeues it"
    NOT_STARTED = "released but not started in time"
    LEASE_ENDED = "lease ended"
    LEASE_LONG = "lease longer than allowed"
    DIED = "fragment died"
    LEFT = "left after notice"
    FINISHED = "training finished"
    CANCELLED = "cancelled by its user"
    STOPPED = "stopped for good"
    NOTED = "noted for later ticks"
    PAUSED = "held or released by an operator"
    OFF = "switched off"
    NOT_CANARY = "outside of the canary"
    CEILING = "more nodes than the site allows"
    LIMIT = "a job waits for a limit that counts it"
    WISH = "its job wishes for fewer nodes"
    NO_WORK = "found no work left"
    SUMMED_UP = "the job's life summed up"


@dataclass(frozen=True)
class Grow:
    """Release a held fragment onto `nodes` with a lease of `limit`."""

    fragment: FragmentId
    nodes: frozenset[str]
    limit: timedelta
    mark: Mark
    cause: Cause = Cause.HOLE_OPEN


@dataclass(frozen=True)
class Renew:
    """Let the lease of a running fragment end at `end`, later or sooner than now."""

    fragment: FragmentId
    end: datetime
    cause: Cause = Cause.HOLE_OPEN


@dataclass(frozen=True)
class SetMark:
    """Write a fragment's mark, and a line beside it that sums up the job's life if there is one."""

    fragment: FragmentId
    mark: Mark
    cause: Cause
    summary: str = ""


@dataclass(frozen=True)
class Notice:
    """Mark a running fragment as leaving and send SIGURG to all its processes."""

    fragment: FragmentId
    mark: Mark
    cause: Cause


@dataclass(frozen=True)
class PutBack:
    """Requeue a fragment, so that it waits for a hole again.

    A running one, which is already held by then, gets SIGTERM, and SIGKILL after KillWait. A new
    `mark` is written afterwards: Slurm (22.05) refuses to change the comment of an ended job. One
    that `is_ended` is held again, unless it `is_paused`: then the operator's hold stays.
    """

    fragment: FragmentId
    cause: Cause
    mark: Optional[Mark] = None
    is_ended: bool = False
    is_paused: bool = False


@dataclass(frozen=True)
class Hold:
    """Hold a fragment as its user would; a running one runs on, and is held once it is requeued."""

    fragment: FragmentId
    cause: Cause


@dataclass(frozen=True)
class Cancel:
    """Cancel these fragments of a job that has ended."""

    fragments: tuple[FragmentId, ...]
    cause: Cause


FragmentAction = Union[Grow, Renew, SetMark, Notice, PutBack, Hold]
Action = Union[FragmentAction, Cancel]


def verb_of(action: Action) -> str:
    """What an action does, as people read it: `grow`, `set mark`, `put back`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(action).__name__).lower()


class SolveStatus(enum.Enum):
    """How the allocation came about: no answer and nothing to do are different things."""

    OPTIMAL = "optimal"
    INCUMBENT = "best found, not proven best"
    UNCHANGED = "no answer, nothing changed"
    NOTHING = "nothing to do"


@dataclass(frozen=True)
class Solve:
    """How the allocator reached its answer. `value` and `bound` are in normalised node-seconds."""

    status: SolveStatus = SolveStatus.NOTHING
    solver: str = "none"
    reason: str = ""
    seconds: float = 0.0
    value: float = 0.0
    bound: float = 0.0


class Spared(enum.Enum):
    """Why a job does not get a size only so that its speed there is seen."""

    OFF = "off"  # the site spends nothing on looking
    GIVEN = "given"  # its curve is known from elsewhere
    ENGINE = "engine"  # its engine tells no rates
    APART = "apart"  # its fragments do not meet: one size is all it has
    SILENT_FAMILY = "silent_family"  # jobs of its name tell nothing
    SILENT = "silent"  # it has told nothing for long at the size in question
    PLENTY = "plenty"  # the jobs together want no more nodes than there are
    FAMILY = "family"  # its family is known, and it is young
    SHARE = "share"  # its equal share shows a second size by itself
    NO_NODES = "no_nodes"  # the nodes for it cannot be had, or are of more use to others
    NOT_WORTH_IT = "not_worth_it"  # knowing more brings less than a look costs
    SPENT = "spent"  # it would be worth it, but its looks have had their part of its node-time


@dataclass(frozen=True)
class JobPlan:
    """What the plan means for one job: sizes in nodes, and what is behind them, the most important
    first. `nodes_probed` is the size that it is to have only so that its speed there is seen,
    `spared` why it has none; None if nothing was decided about it."""

    job_id: int
    nodes_now: int
    nodes_planned: int
    reasons: tuple[Reason, ...] = ()
    nodes_probed: int = 0
    spared: Optional[Spared] = None


class IdleReason(enum.Enum):
    """Why a free node of the malleable partitions is used by nobody; the values name metrics."""

    STARTING = "starting"  # a fragment has just been released onto it
    OBSERVED = "observed"  # a fragment would have been, if ticks did not only observe
    OFF = "off"  # malleable jobs are switched off
    REGISTERING = "registering"  # slurmctld has begun, and nodes have not told it what they run
    CANARY = "canary"  # only a canary's jobs and nodes are used
    LIMIT = "limit"  # the jobs that could use it give way to one that waits for a limit
    NO_JOB = "no_job"  # no malleable job waits, or all have their maximum
    HOLE_SHORT = "hole_short"  # somebody else's claim comes too soon
    UNFIT = "unfit"  # no waiting job can use it: features, memory, or where its fragments died
    SUSPECT = "suspect"  # fragments of several users died there
    RESTING = "resting"  # the jobs that could use it are not to grow yet, or cannot
    CEILING = "ceiling"  # all malleable jobs together have as many nodes as the site allows
    NOT_GIVEN = "not_given"  # the allocator left it: a minimum, a unit, the cost of a resize


@dataclass(frozen=True)
class IdleNodes:
    """So many free nodes stay idle for this reason."""

    reason: IdleReason
    nodes: int


@dataclass(frozen=True)
class Plan:
    """What to do, and why. Applying it twice does no harm; at the level OBSERVE nobody does."""

    actions: tuple[Action, ...] = ()
    jobs: tuple[JobPlan, ...] = ()
    solve: Solve = field(default_factory=Solve)
    notes: tuple[str, ...] = ()
    level: Level = Level.ON
    idle: tuple[IdleNodes, ...] = ()
