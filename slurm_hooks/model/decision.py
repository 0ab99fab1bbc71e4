"""What one tick decides: an intent for each fragment, and the plan with its reasons."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.model.job import NODE, FragmentId, Mark
from slurm_hooks.model.reason import Reason, Why
from slurm_hooks.model.resources import NO_RESOURCES, Resources


class Level(enum.Enum):
    """How much a tick may do."""

    OFF = "off"  # fragments leave, nothing starts
    OBSERVE = "observe"  # it plans and writes nothing
    CANARY = "canary"  # only some jobs or nodes
    ON = "on"


class Verb(enum.Enum):
    """What happens to the run of a fragment."""

    STAY = "stay"  # nothing: it runs, waits or ends as before
    QUEUE = "queue"  # it is released into the ordinary queue, as a core
    GROW = "grow"  # it is released, once it has its nodes
    NOTICE = "notice"  # SIGURG asks all its processes to leave
    PUT_BACK = "put_back"  # requeued, it waits for a hole again; one that runs is ended
    CANCEL = "cancel"


@dataclass(frozen=True)
class Intent:
    """All that a tick wants of one fragment.

    `mark` is its mark from now on and `end` the new end of its lease, None if they are as before.
    One that `is_held` is held as its user would hold it: one that runs then comes back held. It
    grows onto `nodes` with a lease of `limit`. If it counts slots, it gets `asks` there in the
    partition `lane`, and Slurm is told the size if it `is_resized`. One that stays held is moved to
    `lane`, if it has one, with a time limit of `limit`, `qos` and `account` unless they are empty.
    Slurm (22.05) refuses to change a run that `is_ended`, so that is requeued first, whatever the
    verb. `summary` is a line beside the mark that sums up the job's life. `cause` is the reason of
    the weightiest part.
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
        """What it grows by: slots, or nodes if its job counts those."""
        slots = 0 if self.mark is None else self.mark.slots
        return slots or len(self.nodes)

    @property
    def parts(self) -> tuple[str, ...]:
        """What it does, as people read it, the weightiest first: `notice`, `hold`, `renew`."""
        found = (
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
        return tuple(word for word, is_so in found if is_so)

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
    """Two intents on a fragment as one: the mark is that of the second if it has one."""
    heavy = max(then, first, key=_weight)
    return Intent(
        heavy.fragment,
        heavy.cause,
        heavy.verb,
        mark=then.mark or first.mark,
        is_held=first.is_held or then.is_held,
        end=then.end or first.end,
        nodes=heavy.nodes,
        limit=heavy.limit or then.limit or first.limit,
        is_ended=first.is_ended or then.is_ended,
        summary=then.summary or first.summary,
        asks=heavy.asks,
        is_resized=heavy.is_resized,
        lane=heavy.lane or then.lane or first.lane,
        qos=then.qos or first.qos,
        account=then.account or first.account,
    )


def _weight(intent: Intent) -> tuple[int, bool, bool]:
    return (_WEIGHTS[intent.verb], intent.is_held, intent.mark is not None)


def one_each(intents: Iterable[Intent]) -> tuple[Intent, ...]:
    """One intent for each fragment, in the order in which the fragments come."""
    found: dict[FragmentId, Intent] = {}
    for intent in intents:
        first = found.get(intent.fragment)
        found[intent.fragment] = intent if first is None else merged(first, intent)
    return tuple(found.values())


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
    """What the plan means for one job: its sizes in what it counts (`unit`), and what is behind
    them, the most important first. `nodes_needed` are the fewest on which it may train now, 0 if it
    is over."""

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
    """What to do, and why. Applying it twice does no harm; at the level OBSERVE nobody does.

    `actions` holds one intent for each fragment at most. `starting` are the idle nodes on which
    fragments are to start.
    """

    actions: tuple[Intent, ...] = ()
    jobs: tuple[JobPlan, ...] = ()
    solve: Solve = field(default_factory=Solve)
    notes: tuple[Reason, ...] = ()
    level: Level = Level.ON
    idle: tuple[IdleNodes, ...] = ()
    starting: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse two intents on one fragment: one would undo what the other wrote."""
        if len({intent.fragment for intent in self.actions}) < len(self.actions):
            raise ValueError("a plan has one intent for each fragment")
