"""Totals of the ledger over a span of time: the values behind reports and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Optional

from slurm_hooks.history.harvest.jobs import JobLine
from slurm_hooks.history.harvest.values import INTERRUPTIONS, Delay, Done, LaneWait
from slurm_hooks.model import FragmentId, Why
from slurm_hooks.model.unused import Unused

USABLE = frozenset({Why.STARTING, Why.OBSERVED, Why.RESTING, Why.PROBED, Why.NOT_GIVEN})
"""Reasons of idle nodes that a waiting malleable job could have used."""

Standing = Mapping[tuple[str, str], float]
"""The source of metrics, by name and label: each sum since the ledger began, how things stood after
the last tick, and the size of the ledger."""


@dataclass(frozen=True)
class Query:
    """The requested part of the ledger: a span, a user and an account (empty: all)."""

    since: datetime
    until: datetime
    user: str = ""
    account: str = ""


@dataclass(frozen=True)
class Share:
    """The harvest of a user, account or job."""

    name: str
    node_s: float
    jobs: int = 1
    releases: int = 0
    interruptions: int = 0


@dataclass(frozen=True)
class Ends:
    """The runs that ended in the same way, and their node-seconds since their starts."""

    kind: Why
    count: int
    node_s: float


@dataclass(frozen=True)
class VainRun:
    """A run of a fragment that held nodes without training."""

    fragment: FragmentId
    ended: datetime
    nodes: int
    ran_s: float


@dataclass(frozen=True)
class Sample:
    """Mean nodes over an interval: ours, other jobs', out of service, and idle by reason."""

    at: datetime
    ours: float
    busy: float
    out: float
    idle: dict[Why, float]


@dataclass(frozen=True)
class Ticks:
    """The cost of the ticks themselves."""

    count: int = 0
    mean_s: float = 0.0
    longest_s: float = 0.0
    rpcs: int = 0
    refused: int = 0


@dataclass(frozen=True)
class Totals:
    """A span of the ledger.

    * `first` and `last`: the times of its first and last tick.
    * `span_s`: the seconds that its ticks cover. `unseen_s` of them are too far from any tick to
      know why nodes were idle.
    * `starts`: how many other jobs started after Slurm had published their start, late or not.
    * `node_s`: the harvest of the requested user or account, `all_node_s` of all.
    * `core_node_s`: node-seconds of cores, from the ordinary queue and in neither of these.
    * `unused`: unused GPUs and processors times seconds, by resource.
    * `lanes`: the lanes in which jobs may wait for a node, by the last tick."""

    query: Query
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
        """Node-seconds that were idle."""
        return sum(self.idle.values())

    @property
    def used_share(self) -> Optional[float]:
        """The harvested share of all that other jobs left, None if they left no node-seconds."""
        return self._share(self.idle_node_s)

    @property
    def efficiency(self) -> Optional[float]:
        """The harvested share of node-seconds that waiting malleable jobs could have used, or
        None without any."""
        return self._share(sum(self.idle.get(reason, 0.0) for reason in USABLE))

    def _share(self, left: float) -> Optional[float]:
        whole = self.all_node_s + left
        return self.node_s / whole if whole > 0 else None

    @property
    def interruptions(self) -> tuple[Ends, ...]:
        """The ends that neither a tick nor a user wanted."""
        return tuple(end for end in self.ends if end.kind in INTERRUPTIONS)

    @property
    def caused(self) -> tuple[Delay, ...]:
        """Late starts while a fragment of ours was on a node of the plan."""
        return tuple(delay for delay in self.delays if delay.held_s > 0)
