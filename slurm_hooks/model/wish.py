"""The number of nodes that a job wishes for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.words.comment import MOST_AHEAD_S, MOST_NODES

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
