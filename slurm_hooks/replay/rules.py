"""How the system behaves around the allocator: delays, pauses, losses; times in seconds.

The planner's rules beside these, and what differs, are in docs/replay.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Optional

from slurm_hooks.planning.hits import beyond_s, pays_to_stay, redone_s
from slurm_hooks.planning.holes import MINUTE, START
from slurm_hooks.planning.interval import pause_s
from slurm_hooks.settings.values import Tick

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


LOOK_S, MOVE_S, NODE_S = 0.11, 0.004, 4.7e-5
"""What a tick takes (docs/lab/2026-11-21-tick.md): one that has nothing to do; more for each node
that changes hands (16 fragments were released in 0.06 s); more for each node of the machine, by
plan, solver and guard (0.47 s for 10,000)."""


@dataclass(frozen=True)
class OwnPace:
    """How often ticks come where they choose that themselves: as the loop does, on a machine of
    `nodes` nodes whose slurmctld is not busy with others, since logs do not say when it was."""

    chosen: Tick
    nodes: int

    def pause_s(self, moved: int) -> float:
        """Seconds from the start of a tick that moved so many nodes to the next."""
        return pause_s(LOOK_S + MOVE_S * moved + NODE_S * self.nodes, 0, self.chosen)


@dataclass(frozen=True)
class Rules:
    """The rules of one run.

    `tick_s` zero means event-driven: every change is answered at once. Otherwise a decision is made
    every `tick_s` (with a `pace`: for now) and carried out `latency_s` later. Of a known hole end,
    `early_s` are kept clear; a node is given back when less than `lead_s` of the rest is left, and
    a new one is not worth taking for less than `shortest_s`. Ends beyond `horizon_s` make no
    difference. A job that was made smaller does not grow for `snooze_s`. A job that waits for its
    minimum counts more after each `patience_s` (zero: it is not counted). An unplanned loss costs
    the work since the last checkpoint, a planned change too if it `redoes_planned`; `checkpoint_s`
    zero means that no work is lost.
    """

    rescale: Rescale
    tick_s: float = 0.0
    latency_s: float = 0.0
    early_s: float = 0.0
    lead_s: float = 0.0
    shortest_s: float = 0.0
    horizon_s: float = 120.0
    snooze_s: float = 0.0
    patience_s: float = 0.0
    checkpoint_s: float = 0.0
    redoes_planned: bool = False
    pace: Optional[OwnPace] = None

    def __post_init__(self) -> None:
        if self.latency_s and self.latency_s >= self.tick_s:
            raise ValueError("a decision must be carried out before the next one is made")

    @property
    def shortest_gap_s(self) -> float:
        """The shortest time between two jobs of others that is worth a start."""
        return self.early_s + self.shortest_s

    @property
    def reach_s(self) -> float:
        """Seconds from which on it makes no difference how long leases may still run."""
        if not self.tick_s:
            return max(self.horizon_s, self.shortest_s)
        whole_s = -(-self.horizon_s // MINUTE_S) * MINUTE_S
        return max(whole_s, self.shortest_s, START_S + MINUTE_S)

    def after(self, moved: int) -> Rules:
        """The rules once a tick has moved so many nodes: it is told when the next one comes, and
        leaves that much earlier."""
        if self.pace is None:
            return self
        tick_s = self.pace.pause_s(moved)
        return replace(self, tick_s=tick_s, lead_s=self.lead_s + tick_s - self.tick_s)

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
        cost_s = beyond_s(hit_s, self.redoes_planned)
        return self.tick_s > 0 and pays_to_stay(cost_s, size, taken, flee_s)

    def redone_s(self, hit_s: float) -> float:
        """Seconds of work that a planned change costs a job whose hits cost `hit_s` at most."""
        return redone_s(hit_s, self.redoes_planned)

    def _is_startable(self, left_s: float) -> bool:
        return not self.tick_s or left_s - START_S >= MINUTE_S

    def _whole(self, left_s: float) -> float:
        """Leases are whole minutes; without ticks there are none."""
        return max(left_s // MINUTE_S, 0.0) * MINUTE_S if self.tick_s else left_s
