"""How the system behaves around the allocator: delays, pauses, losses; times in seconds.

The planner's rules beside these, and what differs, are in docs/replay.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from slurm_hooks.planning.holes import MINUTE, START

MINUTE_S, START_S = MINUTE.total_seconds(), START.total_seconds()


class Hole(NamedTuple):
    """What matters of the time a node stays: seconds, and whether that is enough for a start."""

    open_s: float
    is_worth_taking: bool


@dataclass(frozen=True)
class Rescale:
    """Seconds without progress after growing and after shrinking."""

    up_s: float
    down_s: float

    def __post_init__(self) -> None:
        if self.up_s < 0 or self.down_s < 0:
            raise ValueError("seconds without progress cannot be negative")


@dataclass(frozen=True)
class Rules:
    """The rules of one run.

    `tick_s` zero means event-driven: every change is answered at once. Otherwise a decision is made
    every `tick_s` and carried out `latency_s` later. Of a known hole end, `early_s` are kept clear;
    a node is given back when less than `lead_s` of the rest is left, and a new one is not worth
    taking for less than `shortest_s`. Ends beyond `horizon_s` make no difference. A job that was
    made smaller does not grow for `snooze_s`. An unplanned loss costs the work since the last
    checkpoint; `checkpoint_s` zero means that no work is lost.
    """

    rescale: Rescale
    tick_s: float = 0.0
    latency_s: float = 0.0
    early_s: float = 0.0
    lead_s: float = 0.0
    shortest_s: float = 0.0
    horizon_s: float = 120.0
    snooze_s: float = 0.0
    checkpoint_s: float = 0.0

    def __post_init__(self) -> None:
        if self.latency_s and self.latency_s >= self.tick_s:
            raise ValueError("a decision must be carried out before the next one is made")

    @property
    def reach_s(self) -> float:
        """Seconds from which on it makes no difference how long leases may still run."""
        if not self.tick_s:
            return max(self.horizon_s, self.shortest_s)
        whole_s = -(-self.horizon_s // MINUTE_S) * MINUTE_S
        return max(whole_s, self.shortest_s, START_S + MINUTE_S)

    def is_closing(self, left_s: float) -> bool:
        """True if a node on which leases must have ended in `left_s` seconds is given back now."""
        return self._whole(left_s) <= self.lead_s

    def hole(self, left_s: float) -> Hole:
        """The hole of a node on which leases must have ended in `left_s` seconds."""
        whole_s = self._whole(left_s)
        open_s = whole_s if whole_s < self.horizon_s else math.inf
        is_startable = not self.tick_s or left_s - START_S >= MINUTE_S
        return Hole(open_s, is_startable and left_s >= self.shortest_s)

    def _whole(self, left_s: float) -> float:
        """Leases are whole minutes; without ticks there are none."""
        return max(left_s // MINUTE_S, 0.0) * MINUTE_S if self.tick_s else left_s
