"""The closed set of reasons, for programs. The words for people are in `report`."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypedDict

from slurm_hooks.model.cluster import ClaimKind, Counted
from slurm_hooks.model.job import FragmentId
from slurm_hooks.model.resources import Resources
from slurm_hooks.model.state import FragmentState, Said


class Of(enum.Flag):
    """The subject of a `Why`."""

    JOB = enum.auto()  # its size: what limits it, or what it waits for
    NODE = enum.auto()  # whether one job can use it
    IDLE = enum.auto()  # a free node of the malleable partitions that no job uses
    ACTION = enum.auto()  # what a tick does to a fragment
    END = enum.auto()  # how a fragment's run ended
    OVER = enum.auto()  # how a job ended
    NOTE = enum.auto()  # what every reader of a plan should know
    DROPPED = enum.auto()  # that an action of a plan no longer holds

    @property
    def whys(self) -> tuple[Why, ...]:
        return tuple(why for why in Why if why.of & self)


_JOB, _NODE, _IDLE = Of.JOB, Of.NODE, Of.IDLE
_ACT, _END, _OVER, _NOTE, _DROPPED = Of.ACTION, Of.END, Of.OVER, Of.NOTE, Of.DROPPED
_EVERY = _JOB | _NODE | _IDLE | _NOTE | _DROPPED


class Why(enum.Enum):
    """A reason. `--json`, the ledger and the names of metrics use the values, so values do not
    change. `of` holds the possible subjects of a member, by default a job."""

    _value_: str
    of: Of

    def __new__(cls, value: str, of: Of = Of.JOB) -> Why:
        """Make the value the member, and keep `of` beside it."""
        member = object.__new__(cls)
        member._value_, member.of = value, of
        return member

    FINISHED = "finished", _JOB | _END | _ACT | _OVER  # the training is over
    STOPPED = "stopped", _JOB | _ACT | _OVER  # for good, after failures
    CANCELLED = "cancelled", _JOB | _END | _ACT | _OVER | _DROPPED  # by its user, or deadline
    CORE = "core", _JOB | _ACT  # its core: where it stands, or that it is queued
    CORE_OVER = "core_over", _ACT | _OVER  # the time of the core in the ordinary queue is
    TO_LANE = "to_lane", _JOB | _ACT  # a fragment is moved to where malleable jobs run
    CANCEL_UNCLEAR = "cancel_unclear"  # of some fragments, while others are still ending
    DIED = "died", _JOB | _NODE | _END | _ACT  # a fragment did
    DEPENDENCY = "dependency"  # other jobs must end first
    HELD = "held", _JOB | _DROPPED  # by an operator
    NOT_STARTED = "not_started", _JOB | _ACT  # Slurm did not start what was released
    WRONG_SIZE = "wrong_size", _JOB | _ACT  # a fragment has other resources than were asked for
    SUSPENDED = "suspended"  # by an operator (26.05: or its user)
    UNKNOWN_STATE = "unknown_state"  # left alone
    LEFT = "left", _END | _ACT  # it was asked to leave, or left by itself before its lease ended
    LEASE_ENDED = "lease_ended", _END | _ACT
    PREEMPTED = "preempted", _END | _ACT  # requeued without a plan of ours
    NODE_FAILED = "node_failed", _END
    UNKNOWN = "unknown", _END | _OVER  # Slurm has forgotten it: the ticks were too far apart
    HOLE_OPEN = "hole_open", _ACT
    HOLE_CLOSES = "hole_closes", _ACT
    GRACE = "grace", _ACT  # Slurm preempts it once that is over
    LANE_LIMIT = "lane_limit", _ACT  # it has run for as long as its partition lets any job run
    NODE_LEAVES = "node_leaves", _ACT  # service
    BETTER_USE = "better_use", _ACT  # elsewhere
    REMINDED = "reminded", _ACT  # it was given notice
    NOTICE_OVER = "notice_over", _ACT
    SECURED = "secured", _ACT  # it comes back held if Slurm requeues it
    LEASE_LONG = "lease_long", _ACT  # longer than allowed
    NOTED = "noted", _ACT  # for later ticks
    ON_HOLD = "on_hold", _ACT  # held or released by an operator
    SUMMED_UP = "summed_up", _ACT  # the job's life
    STARTING = "starting", _IDLE  # a fragment has just been released onto it
    OBSERVED = "observed", _IDLE | _NOTE  # a fragment would have been: ticks only observe
    OFF = "off", _JOB | _IDLE | _ACT | _NOTE | _DROPPED  # malleable jobs are switched off
    REGISTERING = "registering", _EVERY  # nodes have not told a new slurmctld all
    NO_GROWTH = "no_growth", _EVERY  # the site wants none now
    LIMIT = "limit", _JOB | _IDLE | _ACT  # it makes room for a job that waits for one
    NO_JOB = "no_job", _IDLE  # no malleable job waits, or all have their maximum
    GIVEN_BACK = "given_back"  # a node is
    HOLE_ENDS = "hole_ends"  # a node may be used until then
    LEAVING = "leaving"  # a fragment was asked to
    APART = "apart", _JOB | _ACT  # its fragments do not meet, so it is kept to one
    NOT_TRAINING = "not_training"  # a fragment runs and is in no round
    MAXIMUM = "maximum"  # it has that
    SIZE = "size", _JOB | _ACT  # it may not have some numbers of nodes
    WISH = "wish", _JOB | _ACT  # it wants no more nodes now
    NO_PARTS = "no_parts", _JOB | _ACT | _DROPPED  # of nodes: they would delay others here
    NODE_IDLE = "node_idle", _ACT | _DROPPED  # one is, where others' small jobs would go
    NO_WORK = "no_work", _JOB | _ACT | _OVER  # workers of the pool found none
    BELOW_MIN = "below_min", _JOB | _ACT | _DROPPED  # fragments or nodes are too few for now
    NO_FIT = "no_fit"  # no node of its partition has what a fragment needs, or it has no node
    PROBED = "probed", _JOB | _IDLE  # it has a size only so that its speed there is seen
    OTHER_NODES = "other_nodes"  # what stands in the way on nodes that it does not have
    KEPT_BACK = "kept_back", _JOB | _NODE  # left to others' small jobs: a node, GPUs of one
    TAKEN = "taken", _NODE | _DROPPED  # somebody is on it, or it is out of service
    USABLE = "usable", _NODE  # nothing is in the way
    PARTITION = "partition", _NODE | _ACT  # it is in another one
    FEATURES = "features", _NODE  # it lacks some
    GRES = "gres", _NODE  # it lacks some
    MEMORY = "memory", _NODE  # it has too little
    CPUS = "cpus", _NODE  # it has too few
    PART_SMALL = "part_small", _NODE  # too little of it is free
    EXCLUDED = "excluded", _NODE  # by the job's --exclude
    HOLE_SHORT = "hole_short", _NODE | _IDLE | _DROPPED  # somebody else's claim comes too soon
    UNFIT = "unfit", _NODE | _IDLE | _ACT  # for the job, says Slurm; idle: for all that wait
    SUSPECT = "suspect", _NODE | _IDLE | _NOTE  # fragments of several users died there
    RESTING = "resting", _JOB | _IDLE  # it shrank or failed just now
    CEILING = "ceiling", _JOB | _IDLE | _ACT  # jobs have what the site or a QOS allows them
    NOT_GIVEN = "not_given", _IDLE  # the allocator left it: a minimum, a unit, a resize's cost
    SCRIPT_ENDED = "script_ended", _OVER  # with 0, and no agent ever spoke
    ENDED = "ended", _OVER  # nothing tells why
    NEVER_RAN = "never_ran", _OVER  # it was cancelled before
    UNREAD = "unread", _NOTE  # a part of Slurm's answer
    OBJECTIVE = "objective", _NOTE  # the site's function for it failed
    NOT_RENEWED = "not_renewed", _NOTE  # fragments run, and ticks only observe
    MIN_JOB_AGE = "min_job_age", _NOTE  # it is too short
    MAX_JOB_COUNT = "max_job_count", _NOTE  # it is nearly reached
    NOT_DONE = "not_done", _NOTE  # an action that no longer holds
    GONE = "gone", _DROPPED  # a fragment or a node is
    NOT_FREE_TO_START = "not_free_to_start", _DROPPED  # it is held, or gone
    NOT_RUNNING = "not_running", _DROPPED
    REFUSED = "refused", _DROPPED  # its mark was
    CHANGED = "changed", _DROPPED  # its state was


@dataclass(frozen=True)
class Verdict:
    """The verdict on a node for a job: `why` is USABLE or the obstacle, with its detail."""

    why: Why
    detail: str = ""


USABLE = Verdict(Why.USABLE)


class Detail(TypedDict, total=False):
    """The data that the sentence of a reason names.

    `nodes` are names. `count` is the number of subjects. `said` quotes Slurm, a mark, or a site's
    own code.
    """

    fragments: tuple[FragmentId, ...]
    nodes: tuple[str, ...]
    count: int
    more: int  # nodes that are not named
    job: int
    jobs: tuple[int, ...]
    exit_code: str
    said: str
    at: datetime
    since: datetime
    until: datetime
    seconds: float
    nodes_usable: int  # at most, now
    nodes_needed: int
    nodes_planned: int
    nodes_given: int  # to all jobs under a ceiling
    kept: int  # back, of what is free
    most: int  # that there may be
    ceiling: int  # of malleable jobs: all, or those of the user or account that is named
    wish: int
    unit: int
    engine: str
    failures: int
    cancelled: int  # fragments
    sizes_allowed: tuple[int, ...]
    min_run: float  # seconds
    standing: Said
    state: FragmentState
    command: str  # of scontrol
    cause: Why  # of a notice
    source: ClaimKind
    by: str  # the job or reservation that ends the hole
    user: str
    account: str
    waiter: str  # a job of somebody else
    limit: Counted
    action: str
    verdict: Verdict
    given: Resources  # to a fragment by Slurm, as far as it is not what was asked for
    asked: Resources
    partition: str
    because: Reason


@dataclass(frozen=True)
class Reason:
    """A reason for a job's size, or for a plan as a whole. `report` has its sentence."""

    why: Why
    detail: Detail = field(default_factory=Detail, hash=False)
