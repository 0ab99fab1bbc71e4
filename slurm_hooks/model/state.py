"""The state of a fragment as Slurm shows it, and what its agent reports and its job wishes."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.protocol.comment import MOST_AHEAD_S, MOST_NODES, Standing


class FragmentState(enum.Enum):
    """The state of a fragment according to Slurm."""

    HELD = "held"  # pending, priority 0: waits for us
    PENDING = "pending"  # released, or requeued by Slurm: may start any moment
    RUNNING = "running"
    SUSPENDED = "suspended"  # stopped by an operator (26.05: or its user), and still on its nodes
    ENDING = "ending"  # completing: its processes are on their way out
    DONE = "done"  # exit code 0
    TIMED_OUT = "timed out"  # its lease ended, or Slurm took it for somebody else
    FAILED = "failed"  # any other end that its user did not ask for
    LOST = "lost"  # its node failed
    SPECIAL = "special exit"  # an exit code for which Slurm itself puts jobs back and holds them
    CANCELLED = "cancelled"  # by its user, or because its --deadline has passed
    UNKNOWN = "unknown"  # a state this version does not know: left alone


ENDED_STATES = frozenset(
    {
        FragmentState.DONE,
        FragmentState.TIMED_OUT,
        FragmentState.FAILED,
        FragmentState.LOST,
        FragmentState.CANCELLED,
    }
)
WAITING_STATES = frozenset({FragmentState.HELD, FragmentState.SPECIAL})
BACK_STATES = ENDED_STATES - {FragmentState.CANCELLED}
"""States from which a fragment can be put back."""
OPEN_STATES = WAITING_STATES | {FragmentState.PENDING, FragmentState.RUNNING}
"""States in which a fragment can be cancelled, and its mark written."""
LIVE_STATES = frozenset(FragmentState) - ENDED_STATES - WAITING_STATES
"""States in which a fragment is on its nodes, on its way there, or may be."""


class Said(enum.Enum):
    """The report of a fragment's agent on the current run. A script without an agent reports
    NOTHING. protocol/comment.py explains the words."""

    NOTHING = "nothing"
    STARTED = Standing.STARTED.value
    WAITING = Standing.WAITING.value
    JOINED = Standing.JOINED.value
    TRAINED = Standing.TRAINED.value
    LEAVING = Standing.LEAVING.value
    APART = Standing.APART.value
    FINISHED = Standing.FINISHED.value


SKEW = timedelta(seconds=MOST_AHEAD_S)
"""The most that the clock of a node may be ahead of slurmctld's. A wish from beyond that does not
count yet. Otherwise it would lock out all later wishes."""


@dataclass(frozen=True, order=True)
class Wish:
    """At the moment `at` the job wanted at most that many nodes. A newer wish is greater. Of two
    wishes of the same second the larger is greater."""

    at: datetime
    nodes: int

    def __post_init__(self) -> None:
        if not 0 <= self.nodes <= MOST_NODES:
            raise ValueError(f"a wish for {self.nodes} nodes")


def newest(wishes: Iterable[Wish], now: datetime) -> Optional[Wish]:
    """The wish that counts at `now`, if any."""
    return max((wish for wish in wishes if wish.at - now <= SKEW), default=None)
