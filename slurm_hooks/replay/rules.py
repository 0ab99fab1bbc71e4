"""How the system behaves around the allocator: delays, pauses, losses; times in seconds.

The planner's rules beside these, and what differs, are in docs/replay.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from slurm_hooks.planning.hits import pays_to_stay
from slurm_hooks.planning.holes import MINUTE, START

MINUTE_S, START_S = MINUTE.total_seconds(), START.total_seconds()


class Hole(NamedTuple):
    """What matters of the time a node stays: seconds, and whether that is enough for a start of a
    job that leaves in time, and of one that stays past planned starts."""

    open_s: float
    is_worth_taking: bool
    is_worth_past: bool = True


UNCLAIMED = Hole(math.inf, True)


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
    checkpoint, a planned change too if it `redoes_planned`; `checkpoint_s` zero means that no work
    is lost.
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
    redoes_planned: bool = False

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
        is_worth_taking = self._is_startable(left_s) and left_s >= self.shortest_s
        return Hole(open_s, is_worth_taking, self._is_startable(left_s + self.early_s))

    def hole_past(self, left_s: float) -> Hole:
        """The same for those who stay past planned starts: only a new lease has to fit in."""
        return self.hole(left_s)._replace(open_s=math.inf)

    def stays(self, hit_s: float, size: int, taken: int) -> bool:
        """True if a job of `size` nodes, which loses `hit_s` seconds of its work at a hit, leaves
        `taken` of them to a planned start instead of fleeing."""
        flee_s = self.early_s + self.lead_s
        return self.tick_s > 0 and pays_to_stay(hit_s, size, taken, flee_s)

    def _is_startable(self, left_s: float) -> bool:
        return not self.tick_s or left_s - START_S >= MINUTE_S

    def _whole(self, left_s: float) -> float:
        """Leases are whole minutes; without ticks there are none."""
        return max(left_s // MINUTE_S, 0.0) * MINUTE_S if self.tick_s else left_s
