"""How many nodes a job wants now, in its own words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.words.comment import MOST_AHEAD_S, MOST_NODES

SKEW = timedelta(seconds=MOST_AHEAD_S)
"""By so much the clock of a node may be ahead of slurmctld's. A wish from later than that does not
count yet: else its user could lock out all wishes after it."""


@dataclass(frozen=True, order=True)
class Wish:
    """At the moment `at` the job wanted at most so many nodes. Of two the newer one is greater, and
    of two of the same second the larger one."""

    at: datetime
    nodes: int

    def __post_init__(self) -> None:
        if not 0 <= self.nodes <= MOST_NODES:
            raise ValueError(f"a wish for {self.nodes} nodes")


def newest(wishes: Iterable[Wish], now: datetime) -> Optional[Wish]:
    """The wish that counts at `now`; None if there is none."""
    return max((wish for wish in wishes if wish.at - now <= SKEW), default=None)
