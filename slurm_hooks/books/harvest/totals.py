"""What the ledger says of a span of time: the values that reports and pictures are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Optional

from slurm_hooks.books.harvest.values import INTERRUPTIONS, Delay, Done, LaneWait
from slurm_hooks.model import FragmentId, Why
from slurm_hooks.model.job import NODE
from slurm_hooks.model.unused import Unused

USABLE = frozenset({Why.STARTING, Why.OBSERVED, Why.RESTING, Why.NOT_GIVEN})
"""Reasons of idle nodes that some waiting malleable job could have used."""


@dataclass(frozen=True)
class Asked:
    """Which part of the ledger: a span, and whose jobs (empty: everybody's)."""

    since: datetime
    until: datetime
    user: str = ""
    account: str = ""


@dataclass(frozen=True)
class Share:
    """What one user, account or job has harvested."""

    name: str
    node_s: float
    jobs: int = 1
    releases: int = 0
    interruptions: int = 0


@dataclass(frozen=True)
class JobLine:
    """One job, over its whole life; its sizes count `unit`. `over` is None while it goes on, `stop`
    the word in its marks if it was stopped."""

    job_id: int
    user: str
    account: str
    node_s: float
    interruptions: int
    least: int
    most: int
    min_nodes: int
    max_nodes: int
    first: datetime
    last: datetime
    over: Optional[Why]
    stop: str
    unit: str = NODE


@dataclass(frozen=True)
class Ends:
    """Runs that ended alike, and what they had used since their starts."""

    kind: Why
    count: int
    node_s: float


@dataclass(frozen=True)
class VainRun:
    """A run of a fragment that held nodes and trained nothing."""

    fragment: FragmentId
    ended: datetime
    nodes: int
    ran_s: float


@dataclass(frozen=True)
class Sample:
    """Mean nodes over a while: ours, others', out of service, and idle by reason."""

    at: datetime
    ours: float
    busy: float
    out: float
    idle: dict[Why, float]


@dataclass(frozen=True)
class Ticks:
    """What the ticks themselves took."""

    count: int = 0
    mean_s: float = 0.0
    longest_s: float = 0.0
    rpcs: int = 0
    refused: int = 0


@dataclass(frozen=True)
class Totals:
    """A span of the ledger. `first` and `last` are the ticks in it; `span_s` is what they cover, of
    which `unseen_s` lay too far from any tick to say why nodes were idle. `starts` are those of
    others' jobs whose start Slurm had published, late or not. `node_s` is what those used who were
    asked about, `all_node_s` what all did. `core_node_s` is what cores had from the ordinary queue,
    which is in neither. `unused` is what no job used of GPUs and processors, by resource, times
    seconds. `lanes` are as the last tick saw them."""

    asked: Asked
    first: Optional[datetime]
    last: Optional[datetime]
    span_s: float
    unseen_s: float
    node_s: float
    all_node_s: float
    uncertain_node_s: float
    idle: dict[Why, float]
    users: tuple[Share, ...]
    accounts: tuple[Share, ...]
    jobs: tuple[JobLine, ...]
    ends: tuple[Ends, ...]
    done: tuple[Done, ...]
    delays: tuple[Delay, ...]
    starts: int
    ticks: Ticks
    samples: tuple[Sample, ...]
    vain: tuple[VainRun, ...] = ()
    unused: dict[str, Unused] = field(default_factory=dict)
    core_node_s: float = 0.0
    lanes: tuple[LaneWait, ...] = ()

    @property
    def idle_node_s(self) -> float:
        """Node-seconds that stayed idle."""
        return sum(self.idle.values())

    @property
    def used_share(self) -> Optional[float]:
        """Harvested, of all that others left; None if nothing was left."""
        return self._share(self.idle_node_s)

    @property
    def efficiency(self) -> Optional[float]:
        """Harvested, of what malleable jobs that waited could have used; None if there was none."""
        return self._share(sum(self.idle.get(reason, 0.0) for reason in USABLE))

    def _share(self, left: float) -> Optional[float]:
        whole = self.all_node_s + left
        return self.node_s / whole if whole > 0 else None

    @property
    def interruptions(self) -> tuple[Ends, ...]:
        """The ends that nobody wanted."""
        return tuple(end for end in self.ends if end.kind in INTERRUPTIONS)

    @property
    def caused(self) -> tuple[Delay, ...]:
        """Late starts while one of ours was on a node of the plan."""
        return tuple(delay for delay in self.delays if delay.held_s > 0)


@dataclass(frozen=True)
class LastTick:
    """The last tick: when (epoch seconds), what it took, what it found; `whys` are jobs by the
    reasons of their size, `unused` is what no job used, by resource, `no_growth_s` for how long the
    site had wanted no growth."""

    at: float
    seconds: float
    solver_s: float
    jobs: int
    ours: int
    busy: int
    out: int
    idle: dict[Why, int]
    whys: dict[Why, int]
    unused: dict[str, Unused]
    no_growth_s: float


@dataclass(frozen=True)
class Standing:
    """What metrics are made of: counters by name and label, the last tick, the ledger's size."""

    counters: dict[tuple[str, str], float]
    tick: Optional[LastTick]
    bytes: int


@dataclass(frozen=True)
class Chosen:
    """What the site lets be told to Prometheus."""

    by_user: bool = False
