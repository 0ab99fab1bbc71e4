"""The cost of changes for the jobs of a replay, and the pace of ticks that choose it themselves."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_hooks.planning.interval import gap_s
from slurm_hooks.settings.values import Tick

LOOK_S, MOVE_S, NODE_S = 0.11, 0.004, 4.7e-5
"""What a tick takes (docs/lab/2026-11-21-tick.md): one that has nothing to do; more for each node
that changes hands (16 fragments were released in 0.06 s); more for each node of the machine, by
plan, solver and guard (0.47 s for 10,000)."""


@dataclass(frozen=True)
class Rescale:
    """Seconds without progress after growing and after shrinking."""

    up_s: float
    down_s: float

    def __post_init__(self) -> None:
        if self.up_s < 0 or self.down_s < 0:
            raise ValueError("seconds without progress cannot be negative")


@dataclass(frozen=True)
class Costs:
    """The costs of changes, in seconds: pauses, work since the last checkpoint, and the time from a
    tick's snapshot to its effect. With `redoes_planned` a planned change repeats that work too."""

    rescale: Rescale
    latency_s: float = 0.0
    checkpoint_s: float = 0.0
    redoes_planned: bool = False


@dataclass(frozen=True)
class OwnPace:
    """The pace of ticks that choose it themselves, as the loop does. The machine has `nodes` nodes,
    and its slurmctld is not busy, since logs do not show its load."""

    chosen: Tick
    nodes: int

    def gap_s(self, moved: int) -> float:
        """Seconds from the start of a tick that moved this number of nodes to the next."""
        return gap_s(LOOK_S + MOVE_S * moved + NODE_S * self.nodes, 0, self.chosen)
