"""A job's reports on its own speed.

They come from a user's job, so constructors refuse impossible values. No report can make a curve
that claims more than linear speed-up (`slurm_hooks/learning`).
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Optional

MOST_RATE = 1e15  # samples a second: far more than any machine does, and its ratios are exact
LEAST_RATE = 1e-9


class Counts(enum.Enum):
    """The unit that the rates count."""

    SAMPLES = "samples"
    STEPS = "steps x nodes"  # of the optimizer: the batch of each process is taken as constant


@dataclass(frozen=True)
class Rate:
    """A steady measurement: `per_s` of all processes together on `nodes` nodes.

    `error` is its relative standard error, `at` the unix second of its end, `batch` the samples of
    an optimizer step of all processes (0: unknown).
    """

    nodes: int
    per_s: float
    error: float
    at: int
    batch: float = 0.0

    def __post_init__(self) -> None:
        if self.nodes < 1 or not LEAST_RATE <= self.per_s <= MOST_RATE:
            raise ValueError(f"{self.per_s} a second on {self.nodes} nodes is not a rate")
        if not 0 <= self.error < math.inf or not 0 <= self.batch <= MOST_RATE:
            raise ValueError(f"error {self.error} and batch {self.batch} must be at least 0")


@dataclass(frozen=True)
class Pauses:
    """Measured seconds without progress. None: not measured.

    A start lasts from the start of a fragment to the first step. The other pauses last from the
    last step before them to the first step after. `loss_s` belongs to an interruption.
    """

    start_s: Optional[float] = None
    grow_s: Optional[float] = None
    shrink_s: Optional[float] = None
    loss_s: Optional[float] = None

    def __post_init__(self) -> None:
        pauses = (self.start_s, self.grow_s, self.shrink_s, self.loss_s)
        if not all(s is None or 0 <= s < math.inf for s in pauses):
            raise ValueError(f"pauses {pauses} must be seconds")


@dataclass(frozen=True)
class Telemetry:
    """A fragment's report on its job.

    `rates` holds the newest rate of each size, the newest last. `sync` is the share of a step that
    waits for other processes, if it could be measured.
    """

    rates: tuple[Rate, ...] = ()
    counts: Counts = Counts.SAMPLES
    sync: Optional[float] = None
    pauses: Pauses = field(default_factory=Pauses)

    def __post_init__(self) -> None:
        if self.sync is not None and not 0 <= self.sync <= 1:
            raise ValueError(f"{self.sync} is not a share of a step")
