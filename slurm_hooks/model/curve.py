"""Throughput over the number of nodes: a curve, and a curve that was learned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Optional


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
