"""Why something is as it is: one closed set for programs. The words for people are in `report`."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Optional


class Of(enum.Flag):
    """What a `Why` may speak of."""

    JOB = enum.auto()  # its size: what limits it, or what it waits for
    NODE = enum.auto()  # whether one job can use it
    IDLE = enum.auto()  # a free node of the malleable partitions that no job uses
    ACTION = enum.auto()  # what a tick does to a fragment
    END = enum.auto()  # how a fragment's run ended

    @property
    def whys(self) -> tuple[Why, ...]:
        """All that speak of it."""
        return tuple(why for why in Why if why.of & self)


_JOB, _NODE, _IDLE = Of.JOB, Of.NODE, Of.IDLE
_ACT, _END = Of.ACTION, Of.END


class Why(enum.Enum):
    """Why something is as it is. `--json` and the ledger have the values, metrics are named by
    them, and they stay. `of` is what a member may speak of, a job if it does not say."""

    _value_: str
    of: Of

    def __new__(cls, value: str, of: Of = Of.JOB) -> Why:
        """A member is its value; `of` stands beside it."""
        member = object.__new__(cls)
        member._value_, member.of = value, of
        return member

    FINISHED = "finished", _JOB | _END | _ACT  # the training is over
    STOPPED = "stopped", _JOB | _ACT  # for good, after failures
    CANCELLED = "cancelled", _JOB | _END | _ACT  # by its user, or past its deadline
    CANCEL_UNCLEAR = "cancel_unclear"  # of some fragments, while others are still ending
    DIED = "died", _JOB | _NODE | _END | _ACT  # a fragment did
    DEPENDENCY = "dependency"  # other jobs must end first
    HELD = "held"  # by an operator
    NOT_STARTED = "not_started", _JOB | _ACT  # Slurm did not start what was released
    SUSPENDED = "suspended"  # by an operator
    UNKNOWN_STATE = "unknown_state"  # left alone
    LEFT = "left", _END | _ACT  # it was asked to leave, or left by itself before its lease ended
    LEASE_ENDED = "lease_ended", _END | _ACT
    PREEMPTED = "preempted", _END | _ACT  # requeued without a plan of ours
    NODE_FAILED = "node_failed", _END
    UNKNOWN = "unknown", _END  # Slurm has forgotten it: the ticks were too far apart
    HOLE_OPEN = "hole_open", _ACT
    HOLE_CLOSES = "hole_closes", _ACT
    NODE_LEAVES = "node_leaves", _ACT  # service
    BETTER_USE = "better_use", _ACT  # elsewhere
    REMINDED = "reminded", _ACT  # it was given notice
    NOTICE_OVER = "notice_over", _ACT
    SECURED = "secured", _ACT  # it comes back held if Slurm requeues it
    LEASE_LONG = "lease_long", _ACT  # longer than allowed
    NOTED = "noted", _ACT  # for later ticks
    PAUSED = "paused", _ACT  # held or released by an operator
    SUMMED_UP = "summed_up", _ACT  # the job's life
    STARTING = "starting", _IDLE  # a fragment has just been released onto it
    OBSERVED = "observed", _IDLE  # a fragment would have been, if ticks did not only observe
    OFF = "off", _JOB | _IDLE | _ACT  # malleable jobs are switched off
    REGISTERING = "registering", _JOB | _NODE | _IDLE  # nodes have not told a new slurmctld all
    CANARY = "canary", _JOB | _NODE | _IDLE | _ACT  # only a canary's jobs and nodes are used
    LIMIT = "limit", _JOB | _IDLE | _ACT  # it makes room for a job that waits for one
    NO_JOB = "no_job", _IDLE  # no malleable job waits, or all have their maximum
    GIVEN_BACK = "given_back"  # a node is
    HOLE_ENDS = "hole_ends"  # a node may be used until then
    LEAVING = "leaving"  # a fragment was asked to
    ALONE = "alone", _JOB | _ACT  # its fragments do not meet, so it is kept to one
    NOT_TRAINING = "not_training"  # a fragment runs and is in no round
    MAXIMUM = "maximum"  # it has that
    SIZE = "size"  # its script fails with some numbers of nodes
    WISH = "wish", _JOB | _ACT  # it wants no more nodes now
    NO_WORK = "no_work", _JOB | _ACT  # workers of the pool found none
    BELOW_MIN = "below_min", _JOB | _ACT  # its other fragments are not back yet
    LOOKED_AT = "looked_at"  # it has a size only so that its speed there is seen
    OTHER_NODES = "other_nodes"  # what stands in the way on nodes that it does not have
    TAKEN = "taken", _NODE  # somebody is on it, or it is out of service
    USABLE = "usable", _NODE  # nothing is in the way
    PARTITION = "partition", _NODE  # it is in another one
    FEATURES = "features", _NODE  # it lacks some
    GRES = "gres", _NODE  # it lacks some
    MEMORY = "memory", _NODE  # it has too little
    CPUS = "cpus", _NODE  # it has too few
    EXCLUDED = "excluded", _NODE  # by the job's --exclude
    HOLE_SHORT = "hole_short", _NODE | _IDLE  # somebody else's claim comes too soon
    UNFIT = "unfit", _NODE | _IDLE | _ACT  # for the job, says Slurm; idle: for all that wait
    SUSPECT = "suspect", _NODE | _IDLE  # fragments of several users died there
    RESTING = "resting", _JOB | _IDLE  # it shrank or failed just now
    CEILING = (
        "ceiling",
        _JOB | _IDLE | _ACT,
    )  # all malleable jobs together have what the site allows
    NOT_GIVEN = "not_given", _IDLE  # the allocator left it: a minimum, a unit, a resize's cost


@dataclass(frozen=True)
class Verdict:
    """Whether a job can use a node: `why` is USABLE, or what is in the way, with its detail."""

    why: Why
    detail: str = ""


USABLE = Verdict(Why.USABLE)


@dataclass(frozen=True)
class Reason:
    """One thing behind a job's size, in words for people, or so many nodes with one verdict."""

    why: Why
    text: str = ""
    nodes: int = 0
    verdict: Optional[Verdict] = None
