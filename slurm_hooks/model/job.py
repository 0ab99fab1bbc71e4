"""Malleable jobs as one tick sees them: the request, the fragments, their marks.

Constructors refuse values that cannot exist.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Optional

from slurm_hooks.model.resources import GPU, NO_RESOURCES, Resources, Slot
from slurm_hooks.model.state import FragmentState, Said
from slurm_hooks.model.telemetry import Telemetry
from slurm_hooks.model.way import Way, way_of
from slurm_hooks.model.wish import Wish, newest
from slurm_hooks.words.engines import DEFAULT, Engine, engine_of

_OUR_HOLD = ("JobHeldUser", "")
NODE = "node"  # what the sizes of most jobs count
REFUSED = "Refused"  # the obstacle of a release that Slurm did not accept


@dataclass(frozen=True)
class Request:
    """What the user asked for and the site accepted: `--malleable=MIN-MAX,unit=N,engine=NAME`.

    `lease` is the longest lease of one fragment (`--time`), `shortest_hole` the shortest hole
    worth starting in (`--time-min`), `fragments` the number of array elements. `traits` say what an
    engine of the site's own is. `name` is the beginning of the job's name. `excluded` are the nodes
    of `--exclude`, None if the list is too long for a mark or no plain host list. Then only Slurm
    keeps to them. With a `slot` all sizes count slots, and a fragment holds some on one node, in
    multiples of `unit`. Without one they count nodes, and a fragment has `unit` of them.

    The first fragments, of `core` together, wait in the ordinary queue, in the partition and with
    the QOS of the user. All others have their holes in the partition `lane`; it is empty for a job
    without a core. If the core `ends_all`, the job ends with it. `allowed` are the only sizes that
    the job may have, if there are any. Of sizes that are worth the same it likes `preferred` best.
    For `min_run` after a change it does not grow unless that pays.
    """

    min_nodes: int
    max_nodes: int
    fragments: int
    lease: timedelta
    shortest_hole: timedelta
    unit: int = 1
    engine: str = DEFAULT
    traits: str = ""
    launch: str = ""
    name: str = ""
    excluded: Optional[frozenset[str]] = None
    slot: Optional[Slot] = None
    core: int = 0
    ends_all: bool = False
    lane: str = ""
    allowed: frozenset[int] = frozenset()
    preferred: int = 0
    min_run: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        if not self.way.lowest_min <= self.min_nodes <= self.max_nodes or not self.max_nodes:
            raise ValueError(f"sizes {self.min_nodes}-{self.max_nodes} are not a range")
        if self.unit < 1 or self.min_nodes % self.unit or self.max_nodes % self.unit:
            raise ValueError(f"sizes {self.min_nodes}-{self.max_nodes} do not fit unit {self.unit}")
        if self.fragments < 1 or self.lease <= timedelta(0):
            raise ValueError("a request needs a fragment and a lease")
        if not 0 <= self.core <= self.max_nodes or self.core % self.unit:
            raise ValueError(f"core {self.core} does not fit unit {self.unit} and MAX")
        if self.core and not self.lane:
            raise ValueError("a job with a core needs a lane for its other fragments")
        if any(not self.min_nodes <= n <= self.max_nodes or n % self.unit for n in self.allowed):
            raise ValueError("sizes that are allowed lie between MIN and MAX, in whole units")

    def allows(self, size: int) -> bool:
        """True if its fragments may train together at this size."""
        return size >= self.min_nodes and (not self.allowed or size in self.allowed)

    @property
    def size_unit(self) -> str:
        """What all its sizes count: node, gpu or task."""
        if self.slot is None:
            return NODE
        return GPU if self.slot.gres else "task"

    @property
    def is_exchangeable(self) -> bool:
        """True if Slurm may choose among the nodes of fragments that are released together."""
        return self.excluded is not None

    @property
    def runs_on_one(self) -> bool:
        """True if one fragment alone may train."""
        return self.min_nodes <= self.unit

    @cached_property
    def way(self) -> Way:
        """What its fragments are to each other."""
        return way_of(self.kind)

    @cached_property
    def kind(self) -> Optional[Engine]:
        """Its engine; None if it is not known."""
        return engine_of(self.engine, self.traits)


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
class AvoidedNode:
    """A node that a job keeps away from for a while, and since when."""

    node: str
    since: datetime


@dataclass(frozen=True, order=True)
class FailedSize:
    """The nodes that a job had when its script failed, and when that was."""

    nodes: int
    at: datetime


@dataclass(frozen=True)
class Mark:
    """What AdminComment says of one fragment: the accepted request and our notes on it.

    `released` is when the fragment was last released into a hole, and `run` its restart count then:
    a higher one now means that it has run since. `noticed` is when it was last asked to leave, put
    back or found dead, `failures` how often in a row the job had failed by then, `gone` how many
    elements of the job were no more. `deaths` are nodes on which this fragment died, `unfit` those
    that Slurm says do not fit it. `failed_sizes` are those of its job, the last failures of each.
    `vain` counts the releases in a row after which it did not start, `obstacle` is Slurm's reason
    for the last one. `priority` is what Slurm gave the job before it was held. `gave_way_to` is the
    job of somebody else for which it was last asked to leave. `is_paused` is true while an operator
    holds the job, `is_apart` if its fragments do not meet, `is_finished` once its training has
    ended: Slurm may forget first who said so. `idle` is when it ended with exit code 0 as the
    worker of a pool, if it has not been released since. `depended` is about when its job was last
    seen to wait for other jobs. `slots` are those for which it was last released, 0 for one of
    whole nodes. `is_widening` is true if it was last asked to leave to come back with more. A core
    fragment `is_spent` once its time in the ordinary queue is over.
    """

    request: Request
    released: Optional[datetime] = None
    run: int = 0
    noticed: Optional[datetime] = None
    failures: int = 0
    gone: int = 0
    deaths: tuple[AvoidedNode, ...] = ()
    unfit: tuple[AvoidedNode, ...] = ()
    failed_sizes: tuple[FailedSize, ...] = ()
    vain: int = 0
    obstacle: str = ""
    priority: int = 0
    gave_way_to: str = ""
    is_apart: bool = False
    is_on_hold: bool = False
    is_finished: bool = False
    idle: Optional[datetime] = None
    depended: Optional[datetime] = None
    stopped: str = ""
    slots: int = 0
    is_widening: bool = False
    is_spent: bool = False

    @property
    def is_blank(self) -> bool:
        """True if it notes no more than the request and when the fragment was released and left."""
        return not (
            self.failures
            or self.deaths
            or self.unfit
            or self.failed_sizes
            or self.vain
            or self.priority
            or self.gave_way_to
            or self.is_apart
            or self.is_on_hold
            or self.is_finished
            or self.idle
            or self.depended
            or self.stopped
        )

    def in_vain(self, now: datetime, obstacle: str) -> Mark:
        """The mark after a release that came to nothing."""
        return replace(self, released=now, vain=self.vain + 1, obstacle=obstacle)


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
    agent says about this run, or said about the last one if it waits; `has_agent` is true if one
    ever spoke. `depends` is true while other jobs must end first.
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
    loss_s: Optional[float] = None  # seconds of the job's work that losing it costs, if it told
    redoes: bool = False  # it told that a planned change costs as much
    telemetry: Optional[Telemetry] = None  # how fast its job trains, if it told
    wish: Optional[Wish] = None  # how many nodes its job wants, if it told
    note: str = ""  # the rest of AdminComment, which belongs to the site
    is_tied: bool = False  # Slurm has a list of nodes for it, an operator's
    asks: Resources = NO_RESOURCES  # what Slurm gives it, or will, on its node
    lane: str = ""  # the partition that it is in

    @property
    def is_core(self) -> bool:
        """True of a fragment of the core, until its time in the ordinary queue is over."""
        request = self.mark.request
        return self.id.index < request.core // request.unit and not self.mark.is_spent

    @property
    def is_astray(self) -> bool:
        """True if it belongs to the lane of its job and is not there."""
        lane = self.mark.request.lane
        return bool(lane) and not self.is_core and self.lane != lane

    @property
    def size(self) -> int:
        """Its slots, or its nodes if its job counts those."""
        return len(self.nodes) if self.mark.request.slot is None else self.mark.slots

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
    def is_at_rest(self) -> bool:
        """True if there is no more to say of it than that we hold it until there are nodes. Its
        last run, if it had any, ended as it was asked to."""
        return (
            self.state is FragmentState.HELD
            and self.reason in _OUR_HOLD
            and (self.is_leaving or not self.has_run)
            and not (self.depends or self.priority)
            and self.said is not Said.FINISHED
            and self.said is not Said.APART
            and self.mark.is_blank
        )

    @property
    def is_on_hold(self) -> bool:
        """True if an operator holds it: our own holds look like those of its user. A requeuehold
        hides whose hold it is, and we do none."""
        return self.is_shown_held or self.is_requeue_held

    @property
    def is_shown_held(self) -> bool:
        """True if Slurm shows a hold that is not of its user."""
        return self.reason == "JobHeldAdmin"

    @property
    def is_requeue_held(self) -> bool:
        """True after `scontrol requeuehold`, which shows no later hold, until a release."""
        return self.reason.replace("_", " ") == "job requeued in held state"


@dataclass(frozen=True)
class MalleableJob:
    """All fragments of one array that could be read, in order of their index.

    `unread` counts the others; `is_cut` is true if Slurm shows those that never ran as cancelled.
    `account` and `qos` are empty if none is known.
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
    account: str = ""
    qos: str = ""

    @property
    def way(self) -> Way:
        """What its fragments are to each other."""
        return self.request.way

    @cached_property
    def stirring(self) -> tuple[Fragment, ...]:
        """The fragments that are not at rest: all that rules about runs, ends and notes need. Most
        elements of a wide job rest."""
        return tuple(f for f in self.fragments if not f.is_at_rest)

    @cached_property
    def active(self) -> tuple[Fragment, ...]:
        """The fragments that train now."""
        return tuple(f for f in self.stirring if f.is_active)

    @cached_property
    def core(self) -> tuple[Fragment, ...]:
        """The fragments that have their place in the ordinary queue, whatever their state."""
        return tuple(f for f in self.fragments if f.is_core) if self.request.core else ()

    @cached_property
    def nodes(self) -> frozenset[str]:
        """The nodes of the active fragments."""
        return frozenset(n for f in self.active for n in f.nodes)

    @cached_property
    def size(self) -> int:
        """The slots of the active fragments, or their nodes if the job counts those."""
        return sum(f.size for f in self.active)

    @cached_property
    def loss_s(self) -> Optional[float]:
        """Seconds of work that all its nodes lose if one goes unplanned: what is done again, and
        the pause beyond that of a planned shrink.

        The most that a running fragment tells; if none does, one that ran; None if nobody told.
        """
        return max((f.loss_s or 0.0 for f in self._telling), default=None)

    @cached_property
    def redoes(self) -> bool:
        """True if a planned change takes it back to its newest checkpoint too: its script hears of
        no notice."""
        return any(f.redoes for f in self._telling)

    @cached_property
    def _telling(self) -> list[Fragment]:
        told = [f for f in self.fragments if f.loss_s is not None]
        return [f for f in told if f.is_active] or told

    @cached_property
    def failures(self) -> int:
        """How often in a row this job has failed."""
        return max((f.mark.failures for f in self.stirring), default=0)

    @property
    def priority(self) -> int:
        """The highest that Slurm gives, or gave, any of its fragments; 0 if none was released."""
        return max((max(f.priority, f.mark.priority) for f in self.stirring), default=0)

    @cached_property
    def has_agent(self) -> bool:
        """True once an agent of this job has spoken: then an exit code alone means nothing, and
        its fragments look for each other."""
        return any(f.has_agent for f in self.fragments)

    @cached_property
    def is_apart(self) -> bool:
        """True if a fragment says that others train in another directory, and one is enough."""
        return self.request.runs_on_one and any(f.said is Said.APART for f in self.stirring)

    @cached_property
    def trains(self) -> bool:
        """True if a fragment runs whose training has made progress in this run."""
        return any(f.is_training for f in self.stirring)

    @cached_property
    def oldest_start(self) -> Optional[datetime]:
        """Since when the fragment runs that has run the longest."""
        return min((f.start for f in self.active if f.start is not None), default=None)

    def since(self, nodes: int) -> Optional[datetime]:
        """Since when its active fragments have had so many nodes; None if they have fewer."""
        had = 0
        for start, more in sorted((f.start, f.size) for f in self.active if f.start):
            had += more
            if had >= nodes:
                return start
        return None

    @cached_property
    def cancelled(self) -> int:
        """How many of its fragments are cancelled."""
        return sum(f.state is FragmentState.CANCELLED for f in self.stirring)

    def wish(self, now: datetime) -> Optional[Wish]:
        """How many nodes a pool wants by its newest word, never more than its maximum; None if it
        has not said. A gang cannot wish: its size is one that its script is made for."""
        told = (f.wish for f in self.fragments if f.wish is not None)
        found = newest(told, now) if self.way.may_wish else None
        return found and Wish(found.at, min(found.nodes, self.request.max_nodes))

    @property
    def tells_rates(self) -> bool:
        """Whether agents of its engine see how fast the job trains: those that form rounds do."""
        return self.request.kind is not None and self.request.kind.has_rounds
