"""The speed of a job: its own reports, and its throughput over the number of nodes.

Reports come from a user's job, so constructors refuse impossible values. No report can make a curve
that claims more than linear speed-up (`slurm_hooks/learning`).
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from statistics import fmean, pstdev
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


@dataclass(frozen=True)
class Curve:
    """Throughput over node counts: linear between points, constant beyond the last.

    The first point is (0, 0). Values have any unit: the allocator uses them relative to the value
    at the job's smallest size.
    """

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        sizes = [n for n, _ in self.points]
        if not self.points or self.points[0] != (0, 0.0):
            raise ValueError("a curve starts at (0, 0.0)")
        if sizes != sorted(set(sizes)) or not all(0 <= v < math.inf for _, v in self.points):
            raise ValueError("a curve has growing sizes, and no value is negative or infinite")

    def scaled(self, units: int) -> Curve:
        """The same curve over sizes that count `units` times as much."""
        if units == 1:
            return self
        return Curve(tuple((n * units, value) for n, value in self.points))

    def __call__(self, nodes: float) -> float:
        """The throughput at `nodes`, in the curve's own unit."""
        last_n, last_v = self.points[0]
        for n, v in self.points[1:]:
            if nodes <= n:
                return last_v + (v - last_v) * (nodes - last_n) / (n - last_n)
            last_n, last_v = n, v
        return last_v


@dataclass(frozen=True)
class Learned:
    """The knowledge of how a job scales. `curve` is None while it is too little.

    `plausible` are curves that the measurements allow, each as likely as the others. `curve` is
    about their mean: where they differ, little is known. `sizes_seen` are the sizes in nodes whose
    rates count, in order. `is_shared` is true if `curve` needs the rates of other jobs.
    """

    curve: Optional[Curve] = None
    plausible: tuple[Curve, ...] = ()
    sizes_seen: tuple[int, ...] = ()
    is_shared: bool = False

    def spread(self, nodes: int) -> float:
        """The relative standard deviation of the throughput at `nodes`, infinite if unknown."""
        values = [curve(nodes) for curve in self.plausible]
        mean = fmean(values) if values else 0.0
        return pstdev(values) / mean if mean > 0 else math.inf
