"""The cost of changes for the jobs of a replay."""

from __future__ import annotations

from dataclasses import dataclass


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
