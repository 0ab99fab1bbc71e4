"""Malleable jobs as a tick sees them: the request, the fragments, their marks.

Constructors refuse values that cannot exist.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Optional

from slurm_hooks.model.resources import GPU, NO_RESOURCES, Resources, Slot
from slurm_hooks.model.speed import Telemetry
from slurm_hooks.model.state import FragmentState, Said, Wish, newest
from slurm_hooks.protocol.engines import DEFAULT, Engine, engine_of

_OUR_HOLD = ("JobHeldUser", "")
NODE = "node"  # what the sizes of most jobs count
REFUSED = "Refused"  # the obstacle of a release that Slurm did not accept
NOT_LAUNCHED = "LaunchFailed"  # the obstacle of a release whose node could not start it
NOT_MOVED = "NotMoved"  # the obstacle of a move to the lane that Slurm did not accept


@dataclass(frozen=True)
class Way:
    """The relation of a job's fragments to each other: a gang, or the workers of a pool.

    Each field is a question. So a rule names the property that it depends on, not an engine.
    """

    lowest_min: int  # that a request may name
    needs_min: bool  # below its minimum it cannot go on
    works_as_one: bool  # the start or the loss of a fragment costs all of them
    zero_is_idle: bool  # exit code 0 says that this fragment found no work, and no more than that
    may_wish: bool  # its script may say how many nodes it wants


GANG = Way(lowest_min=1, needs_min=True, works_as_one=True, zero_is_idle=False, may_wish=False)
POOL = Way(lowest_min=0, needs_min=False, works_as_one=False, zero_is_idle=True, may_wish=True)


def way_of(engine: Optional[Engine]) -> Way:
    """The way of an engine. An unknown engine counts as a gang, which may do less."""
    return POOL if engine is not None and engine.is_pool else GANG


@dataclass(frozen=True)
class Request:
    """The request of the user, as the site accepted it: `--malleable=MIN-MAX,unit=N,engine=NAME`.

    * `lease`: the longest lease of a fragment (`--time`).
    * `shortest_hole`: the shortest hole worth starting in (`--time-min`).
    * `fragments`: the number of array elements.
    * `traits`: the kind of an engine of the site's own.
    * `name`: the beginning of the job's name.
    * `excluded`: the nodes of `--exclude`. None if the list is too long for a mark, or is not a
      plain host list. Then only Slurm applies it.
    * `slot`: if set, all sizes count slots, and a fragment holds a multiple of `unit` slots on its
      node. Otherwise sizes count nodes, and a fragment has `unit` nodes.
    * `core`: the size of the core. Its fragments come first in the array, and wait in the ordinary
      queue, in the partition and with the QOS of the user.
    * `lane`: for a job with a core, the partition to which all other fragments move. A part of a
      node may then be in another partition of ours.
    * `ends_all`: true if the job ends with its core.
    * `allowed`: the only sizes that the job may have. Empty: any size.
    * `preferred`: the size to choose among sizes of equal worth.
    * `min_run`: for so long after a change the job grows only if that pays.
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
        """The unit of all its sizes: node, gpu or task."""
        if self.slot is None:
            return NODE
        return GPU if self.slot.gres else "task"

    @property
    def is_exchangeable(self) -> bool:
        """True if Slurm may choose among the nodes of fragments that are released together."""
        return self.excluded is not None

    @property
    def runs_on_one(self) -> bool:
        return self.min_nodes <= self.unit

    @cached_property
    def way(self) -> Way:
        return way_of(self.kind)

    @cached_property
    def kind(self) -> Optional[Engine]:
        """Its engine, or None if it is unknown."""
        return engine_of(self.engine, self.traits)


@dataclass(frozen=True)
class Needs:
    """The demands of the job's own options on each node. Zero and empty demand no more.

    `features` is the text of --constraint. `memory_mib` and `cpus` are lower bounds: a job that
    asks for them by task or by processor may need more. Slurm then gives the reason BadConstraints.
    """

    features: str = ""
    memory_mib: int = 0
    cpus: int = 0
    gres: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, order=True)
class AvoidedNode:
    """A node that a job avoids for a while, and the moment when this began."""

    node: str
    since: datetime


@dataclass(frozen=True)
class Mark:
    """The mark in a fragment's AdminComment: the accepted request and our notes.

    * `released`, `run`: the moment of its last release into a hole, and its restart count then. A
      higher count now means that it has run since.
    * `noticed`: the moment when it was last asked to leave, put back or found dead. By then the job
      had failed `failures` times in a row, and `gone` elements of it had ended.
    * `deaths`, `unfit`: nodes on which it died, and nodes that do not fit it according to Slurm, or
      that could not start it.
    * `vain`, `obstacle`: the number of releases in a row after which it did not start, and Slurm's
      reason for the last of them.
    * `priority`: the priority that Slurm gave the job before it was held.
    * `gave_way_to`: the job of another user for which it was last asked to leave.
    * `is_on_hold`: an operator holds the job.
    * `is_apart`: its fragments do not meet.
    * `is_finished`: the training has finished. Slurm may forget the fragment that reported it.
    * `idle`: the moment when it ended with exit code 0 as the worker of a pool, if it has not been
      released since.
    * `depended`: the moment, roughly, when its job was last seen to wait for other jobs.
    * `slots`: the slots of its last release, 0 for a fragment of whole nodes.
    * `qos`: the QOS of its last release, if QOS decide which parts Slurm takes first.
    * `is_spent`: the time of this core fragment in the ordinary queue is over.
    """

    request: Request
    released: Optional[datetime] = None
    run: int = 0
    noticed: Optional[datetime] = None
    failures: int = 0
    gone: int = 0
    deaths: tuple[AvoidedNode, ...] = ()
    unfit: tuple[AvoidedNode, ...] = ()
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
    qos: str = ""
    is_spent: bool = False

    @property
    def is_blank(self) -> bool:
        """True if it holds only the request and the times of the last release and notice."""
        return not (
            self.failures
            or self.deaths
            or self.unfit
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
        """The mark after a release that did not lead to a start. The release may have named its
        nodes in case that they cannot start it, which is known only if the launch failed.
        """
        is_known = obstacle == NOT_LAUNCHED
        unfit = tuple(a for a in self.unfit if is_known or a.since != self.released)
        return replace(self, released=now, vain=self.vain + 1, obstacle=obstacle, unfit=unfit)


@dataclass(frozen=True, order=True)
class FragmentId:
    """An array element, written JOB_INDEX."""

    job_id: int
    index: int

    def __str__(self) -> str:
        return f"{self.job_id}_{self.index}"


@dataclass(frozen=True)
class Fragment:
    """An element of a malleable job's array.

    * `start`, `end`: of the current run, or of the last run. The `end` of a running fragment is the
      end of its lease.
    * `limit`: the time limit that Slurm enforces.
    * `eligible`: Slurm does not start it before this moment.
    * `priority`: 0 while it is held, running or not.
    * `said`: the report of its agent on this run, or on the last run while it waits.
    * `has_agent`: true if an agent of it has ever reported.
    * `depends`: true while other jobs must end first.
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
    loss_s: Optional[float] = None  # seconds of the job's work that an interruption costs, if known
    redoes: bool = False  # a planned change costs as much
    telemetry: Optional[Telemetry] = None  # how fast its job trains, if known
    wish: Optional[Wish] = None  # the nodes that its job wishes for, if any
    note: str = ""  # the rest of AdminComment, which belongs to the site
    is_tied: bool = False  # Slurm has a list of nodes for it, an operator's
    asks: Resources = NO_RESOURCES  # what Slurm gives it, or will, on its node
    lane: str = ""  # the partition that it is in

    @property
    def is_core(self) -> bool:
        """True of a fragment of the core, until its time in the ordinary queue is over."""
        request = self.mark.request
        return self.id.index < request.core // request.unit and not self.mark.is_spent

    def is_astray(self, lanes: Collection[str]) -> bool:
        """True if it belongs to the lane of a job with a core, and is outside these lanes."""
        return bool(self.mark.request.core) and not self.is_core and self.lane not in lanes

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
    def is_not_launched(self) -> bool:
        """True if its node could not start it. Slurm has put it back and holds it."""
        is_said = self.reason.replace("_", " ") == "launch failed requeued held"
        return is_said and self.has_run and self.state is FragmentState.HELD

    @property
    def is_at_rest(self) -> bool:
        """True if it only waits, held by us, for nodes. Its last run, if any, ended on request."""
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
        """True if an operator holds it. Our own holds look like holds of its user. A requeuehold
        hides its owner, and we never use it."""
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
    """All fragments of an array that could be read, in order of their index.

    `unread` counts the other fragments. `is_cut` is true if Slurm shows fragments that never ran as
    cancelled. `account` and `qos` are empty if they are unknown.
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
        return self.request.way

    @cached_property
    def stirring(self) -> tuple[Fragment, ...]:
        """The fragments that are not at rest. Rules about runs, ends and notes need only these:
        most elements of a wide job rest."""
        return tuple(f for f in self.fragments if not f.is_at_rest)

    @cached_property
    def active(self) -> tuple[Fragment, ...]:
        """The fragments that train now."""
        return tuple(f for f in self.stirring if f.is_active)

    @cached_property
    def core(self) -> tuple[Fragment, ...]:
        """The fragments with a place in the ordinary queue, in any state."""
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
        """Seconds of work that all its nodes lose at an interruption: the repeated work, and the
        part of the pause beyond the pause of a planned shrink.

        It is the largest report of a running fragment, or else of a fragment that ran. None: no
        fragment has reported it.
        """
        return max((f.loss_s or 0.0 for f in self._telling), default=None)

    @cached_property
    def redoes(self) -> bool:
        """True if planned changes take it back to its newest checkpoint too, since its script gets
        no notice."""
        return any(f.redoes for f in self._telling)

    @cached_property
    def _telling(self) -> list[Fragment]:
        telling = [f for f in self.fragments if f.loss_s is not None]
        return [f for f in telling if f.is_active] or telling

    @cached_property
    def failures(self) -> int:
        """The number of failures of this job in a row."""
        return max((f.mark.failures for f in self.stirring), default=0)

    @property
    def priority(self) -> int:
        """The highest priority that Slurm gives, or gave, a fragment. 0 before a first release."""
        return max((max(f.priority, f.mark.priority) for f in self.stirring), default=0)

    @cached_property
    def has_agent(self) -> bool:
        """True once an agent of this job has reported. From then on an exit code alone is no proof,
        and its fragments search for each other."""
        return any(f.has_agent for f in self.fragments)

    @cached_property
    def is_apart(self) -> bool:
        """True if a fragment reports others that train in another directory, and a single fragment
        may train."""
        return self.request.runs_on_one and any(f.said is Said.APART for f in self.stirring)

    @cached_property
    def trains(self) -> bool:
        """True if a fragment runs whose training has made progress in this run."""
        return any(f.is_training for f in self.stirring)

    @cached_property
    def oldest_start(self) -> Optional[datetime]:
        """The start of the fragment that has run the longest."""
        return min((f.start for f in self.active if f.start is not None), default=None)

    def since(self, nodes: int) -> Optional[datetime]:
        """The moment since which its active fragments have had `size` nodes, or None."""
        had = 0
        for start, more in sorted((f.start, f.size) for f in self.active if f.start):
            had += more
            if had >= nodes:
                return start
        return None

    @cached_property
    def cancelled(self) -> int:
        return sum(f.state is FragmentState.CANCELLED for f in self.stirring)

    def wish(self, now: datetime) -> Optional[Wish]:
        """The number of nodes that a pool last wished for, at most its maximum. None: no wish. A
        gang cannot wish, since its script is made for its size."""
        wishes = (f.wish for f in self.fragments if f.wish is not None)
        wish = newest(wishes, now) if self.way.may_wish else None
        return wish and Wish(wish.at, min(wish.nodes, self.request.max_nodes))

    @property
    def tells_rates(self) -> bool:
        """Tell whether agents of its engine measure how fast the job trains. Rounds are needed."""
        return self.request.kind is not None and self.request.kind.has_rounds
