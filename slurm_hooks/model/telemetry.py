"""What a job tells about its own speed.

All of it comes from a user's job: constructors refuse what cannot be true, and nothing that is
told can make a curve that claims more than linear speed-up (`slurm_hooks/learning`).
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Optional

MOST_RATE = 1e15  # samples a second: far more than any machine does, and its ratios are exact
LEAST_RATE = 1e-9


class Counts(enum.Enum):
    """What the rates count."""

    SAMPLES = "samples"
    STEPS = "steps x nodes"  # of the optimizer: the batch of each process is taken as constant


@dataclass(frozen=True)
class Rate:
    """One steady measurement: `per_s` of all processes together on `nodes` nodes.

    `error` is its relative standard error, `at` the unix second of its end, `batch` the samples of
    one optimizer step of all processes (0: unknown).
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
    """Seconds without progress, as measured; None if it has not been seen.

    A start counts from the start of a fragment to the first step, the others from the last step
    before to the first after it; `hit_s` is that of a loss without notice.
    """

    start_s: Optional[float] = None
    grow_s: Optional[float] = None
    shrink_s: Optional[float] = None
    loss_s: Optional[float] = None

    def __post_init__(self) -> None:
        told = (self.start_s, self.grow_s, self.shrink_s, self.loss_s)
        if not all(s is None or 0 <= s < math.inf for s in told):
            raise ValueError(f"pauses {told} must be seconds")


@dataclass(frozen=True)
class Telemetry:
    """What one fragment tells about its job.

    `rates` holds the newest of each size, the newest last; `sync` is the share of a step that waits
    for others, if it could be seen.
    """

    rates: tuple[Rate, ...] = ()
    counts: Counts = Counts.SAMPLES
    sync: Optional[float] = None
    pauses: Pauses = field(default_factory=Pauses)

    def __post_init__(self) -> None:
        if self.sync is not None and not 0 <= self.sync <= 1:
            raise ValueError(f"{self.sync} is not a share of a step")
