"""The decisions of a tick: an intent for each fragment, and the plan with its reasons."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.model.job import NODE, Fragment, FragmentId, MalleableJob, Mark
from slurm_hooks.model.reason import Reason, Why
from slurm_hooks.model.resources import NO_RESOURCES, Resources
from slurm_hooks.model.state import FragmentState


class Level(enum.Enum):
    """How much a tick may do."""

    OFF = "off"  # fragments leave, nothing starts
    OBSERVE = "observe"  # it plans and writes nothing
    ON = "on"


class Verb(enum.Enum):
    """The change to the run of a fragment."""

    STAY = "stay"  # nothing: it runs, waits or ends as before
    QUEUE = "queue"  # it is released into the ordinary queue, as a core
    GROW = "grow"  # it is released, once it has its nodes
    NOTICE = "notice"  # SIGURG asks all its processes to leave
    PUT_BACK = "put_back"  # requeued, it waits for a hole again; one that runs is ended
    CANCEL = "cancel"


@dataclass(frozen=True)
class Intent:
    """All that a tick wants of a fragment.

    * `mark` and `end` are its new mark and the new end of its lease, None if they do not change.
    * `is_held`: hold it as its user would. A running fragment then comes back held.
    * `nodes`, `limit`: the nodes that it grows onto, and the lease there.
    * `asks`, `lane`: for a fragment of slots, its resources there and the partition. If QOS decide
      which parts Slurm takes first, `qos` stands in place of `lane`. Slurm is told the size if it
      `is_resized`.
    * A fragment that stays held moves to `lane`, if that is set, with `limit`, `qos` and `account`
      where they are set.
    * `is_ended`: Slurm (22.05) refuses to change an ended run, so it is requeued first.
    * `summary`: a line beside the mark that sums up the job's life.
    * `cause`: the reason of the weightiest part.
    """

    fragment: FragmentId
    cause: Why
    verb: Verb = Verb.STAY
    mark: Optional[Mark] = None
    is_held: bool = False
    end: Optional[datetime] = None
    nodes: frozenset[str] = frozenset()
    limit: timedelta = timedelta(0)
    is_ended: bool = False
    summary: str = ""
    asks: Resources = NO_RESOURCES
    is_resized: bool = False
    lane: str = ""
    qos: str = ""
    account: str = ""

    @property
    def size(self) -> int:
        """The slots that it grows by, or the nodes if its job counts nodes."""
        slots = 0 if self.mark is None else self.mark.slots
        return slots or len(self.nodes)

    @property
    def parts(self) -> tuple[str, ...]:
        """Its parts in words for people, the weightiest first: `notice`, `hold`, `renew`."""
        parts = (
            ("grow", self.verb is Verb.GROW),
            ("queue", self.verb is Verb.QUEUE),
            ("move", self.is_moved),
            ("notice", self.verb is Verb.NOTICE),
            ("cancel", self.verb is Verb.CANCEL),
            ("put back", self.verb is Verb.PUT_BACK or self.is_ended),
            ("hold", self.is_held and not self.is_ended),
            ("set mark", self.mark is not None and self.verb in (Verb.STAY, Verb.CANCEL)),
            ("renew", self.end is not None),
        )
        return tuple(word for word, is_so in parts if is_so)

    @property
    def is_moved(self) -> bool:
        """True if it goes to another partition and stays held there."""
        return bool(self.lane) and self.verb is Verb.STAY

    @property
    def has_late_mark(self) -> bool:
        """True if its mark is written as it starts or is put back, and not before."""
        return self.verb in (Verb.GROW, Verb.QUEUE) or self.is_ended


_WEIGHTS = {verb: weight for weight, verb in enumerate(Verb)}


def merged(first: Intent, then: Intent) -> Intent:
    """Merge two intents on a fragment. The mark of the second wins, if it has a mark."""
    heavy = max(then, first, key=_weight)
    return replace(
        heavy,
        mark=then.mark or first.mark,
        is_held=first.is_held or then.is_held,
        end=then.end or first.end,
        limit=heavy.limit or then.limit or first.limit,
        is_ended=first.is_ended or then.is_ended,
        summary=then.summary or first.summary,
        lane=heavy.lane or then.lane or first.lane,
        qos=then.qos or first.qos,
        account=then.account or first.account,
    )


def _weight(intent: Intent) -> tuple[int, bool, bool]:
    return (_WEIGHTS[intent.verb], intent.is_held, intent.mark is not None)


def one_each(intents: Iterable[Intent]) -> tuple[Intent, ...]:
    """Merge all intents on the same fragment, in the order in which the fragments come."""
    by_fragment: dict[FragmentId, Intent] = {}
    for intent in intents:
        first = by_fragment.get(intent.fragment)
        by_fragment[intent.fragment] = intent if first is None else merged(first, intent)
    return tuple(by_fragment.values())


def by_job(intents: Iterable[Intent]) -> dict[int, list[Intent]]:
    jobs: dict[int, list[Intent]] = {}
    for intent in intents:
        jobs.setdefault(intent.fragment.job_id, []).append(intent)
    return jobs


def may_train(job: MalleableJob, intents: Iterable[Intent]) -> bool:
    """Tell whether the job may have the size that these intents on its fragments lead to."""
    some = tuple(intents)
    going = {i.fragment for i in some if i.verb in (Verb.NOTICE, Verb.PUT_BACK)}
    held = {i.fragment for i in some if i.is_held}
    runs = (f.size for f in job.active if f.id not in going)
    comes = (f.size or job.request.unit for f in job.fragments if _comes(f) and f.id not in held)
    size = sum(runs) + sum(comes) + sum(i.size for i in some if i.verb is Verb.GROW)
    return not job.way.needs_min or job.request.allows(size)


def _comes(fragment: Fragment) -> bool:
    """Tell whether it runs in a moment. Until then Slurm may not say on which nodes of its group.

    A core may wait in its queue for days, and a fragment that Slurm has requeued is to be held.
    """
    is_ours = fragment.mark.released is not None and not fragment.has_run
    is_going = fragment.is_core or fragment.is_leaving
    return fragment.state is FragmentState.PENDING and is_ours and not is_going


class SolveStatus(enum.Enum):
    """The way in which the allocation came about. A missing answer is not an empty answer."""

    OPTIMAL = "optimal"
    INCUMBENT = "best so far, not proven best"
    UNCHANGED = "no answer, nothing changed"
    NOTHING = "nothing to do"


@dataclass(frozen=True)
class Solve:
    """The allocator's account of its answer. `value` and `bound` are in normalised node-seconds."""

    status: SolveStatus = SolveStatus.NOTHING
    solver: str = "none"
    reason: str = ""
    seconds: float = 0.0
    value: float = 0.0
    bound: float = 0.0


@dataclass(frozen=True)
class JobPlan:
    """The meaning of the plan for a job: its sizes in its `unit`, and their reasons, the most
    important first. `nodes_needed` is the smallest size at which it may train now, 0 once it has
    ended."""

    job_id: int
    nodes_now: int
    nodes_planned: int
    reasons: tuple[Reason, ...] = ()
    nodes_needed: int = 0
    unit: str = NODE


@dataclass(frozen=True)
class IdleNodes:
    """So many free nodes stay idle for this reason."""

    reason: Why
    nodes: int


@dataclass(frozen=True)
class Plan:
    """The actions of a tick and their reasons. Applying them twice does no harm. At the level
    OBSERVE they are not applied.

    `actions` holds at most a single intent for each fragment. `starting` are the idle nodes on
    which fragments are to start.
    """

    actions: tuple[Intent, ...] = ()
    jobs: tuple[JobPlan, ...] = ()
    solve: Solve = field(default_factory=Solve)
    notes: tuple[Reason, ...] = ()
    level: Level = Level.ON
    idle: tuple[IdleNodes, ...] = ()
    starting: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse two intents on the same fragment: they would overwrite each other."""
        if len({intent.fragment for intent in self.actions}) < len(self.actions):
            raise ValueError("a plan has one intent for each fragment")
