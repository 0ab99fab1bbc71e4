"""What one tick decides: actions on fragments, and the plan that holds them with its reasons."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Optional, Union

from slurm_hooks.model.job import FragmentId, Mark
from slurm_hooks.model.reason import Reason, Why


class Level(enum.Enum):
    """How much a tick may do."""

    OFF = "off"  # fragments leave, nothing starts
    OBSERVE = "observe"  # it plans and writes nothing
    CANARY = "canary"  # only some jobs or nodes
    ON = "on"


@dataclass(frozen=True)
class Grow:
    """Release a held fragment onto `nodes` with a lease of `limit`."""

    fragment: FragmentId
    nodes: frozenset[str]
    limit: timedelta
    mark: Mark
    cause: Why = Why.HOLE_OPEN


@dataclass(frozen=True)
class Renew:
    """Let the lease of a running fragment end at `end`, later or sooner than now."""

    fragment: FragmentId
    end: datetime
    cause: Why = Why.HOLE_OPEN


@dataclass(frozen=True)
class SetMark:
    """Write a fragment's mark, and a line beside it that sums up the job's life if there is one."""

    fragment: FragmentId
    mark: Mark
    cause: Why
    summary: str = ""


@dataclass(frozen=True)
class Notice:
    """Mark a running fragment as leaving and send SIGURG to all its processes."""

    fragment: FragmentId
    mark: Mark
    cause: Why


@dataclass(frozen=True)
class PutBack:
    """Requeue a fragment, so that it waits for a hole again.

    A running one, which is already held by then, gets SIGTERM, and SIGKILL after KillWait. A new
    `mark` is written afterwards: Slurm (22.05) refuses to change the comment of an ended job. One
    that `is_ended` is held again, unless it `is_paused`: then the operator's hold stays.
    """

    fragment: FragmentId
    cause: Why
    mark: Optional[Mark] = None
    is_ended: bool = False
    is_paused: bool = False


@dataclass(frozen=True)
class Hold:
    """Hold a fragment as its user would; a running one runs on, and is held once it is requeued."""

    fragment: FragmentId
    cause: Why


@dataclass(frozen=True)
class Cancel:
    """Cancel these fragments of a job that has ended."""

    fragments: tuple[FragmentId, ...]
    cause: Why


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


@dataclass(frozen=True)
class JobPlan:
    """What the plan means for one job: sizes in nodes, and what is behind them, the most important
    first. `nodes_needed` are the fewest on which it may train now, 0 if it is over."""

    job_id: int
    nodes_now: int
    nodes_planned: int
    reasons: tuple[Reason, ...] = ()
    nodes_needed: int = 0


@dataclass(frozen=True)
class IdleNodes:
    """So many free nodes stay idle for this reason."""

    reason: Why
    nodes: int


@dataclass(frozen=True)
class Plan:
    """What to do, and why. Applying it twice does no harm; at the level OBSERVE nobody does."""

    actions: tuple[Action, ...] = ()
    jobs: tuple[JobPlan, ...] = ()
    solve: Solve = field(default_factory=Solve)
    notes: tuple[Reason, ...] = ()
    level: Level = Level.ON
    idle: tuple[IdleNodes, ...] = ()
