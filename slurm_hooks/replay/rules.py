"""How the system behaves around the allocator: delays, pauses, what is lost; times in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rescale:
    """Seconds without progress after growing and after shrinking."""

    up_s: float
    down_s: float

    def __post_init__(self) -> None:
        if self.up_s < 0 or self.down_s < 0:
            raise ValueError("rescaling cannot take less than no time")


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
