"""Models how much slower a step gets with more nodes: a family of shapes, and the fit of each.

The shape comes from Pollux (Qiao et al., OSDI 2021, section 3.2, and petuum/adaptdl, `goodput.py`),
with the batch of each process held constant, in units of the job's smallest allocation. A step
takes

    t(u) = (1 + n(u)^g)^(1/g),   n(1) = 0,   n(u) = c + d (u - 2) from two units on

times its time on a single unit. Computing overlaps with the network's work, the more the larger g
is. Rates are then u / t(u) times the rate of a unit. A shape is named by the effects of c and d,
which compare better between jobs: `cliff` is log t(2), `slope` is log t(16) - log t(2).

Instead of a best shape there is a table of shapes, each with a weight. So no fit has to converge,
whatever the rates are, and the spread of the weights shows how uncertain the result is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from slurm_hooks.model import Rate

FAR = 16  # units at which `slope` ends
CLIFFS = tuple(
    round(at / 100, 2) for at in (0, 1, 2, 5, 9, 14, 20, 28, 38, 50, 65, 82, 100, 120, 145, 175)
)
SLOPES = tuple(
    round(at / 100, 2) for at in (0, 2, 5, 9, 14, 20, 28, 37, 48, 60, 75, 95, 120, 160, 210)
)
OVERLAPS = (1.0, 2.5)

MODEL_ERROR = 0.025
"""The relative error of the best shape itself, in addition to the measurement's. Real curves have
steps where a ring changes its algorithm or a rack ends."""
LEAST_ERROR, MOST_ERROR = 0.01, 1.0
MOST_SIZES = 12
"""The sizes of a job that count: its smallest and the newest. More would only cost time."""
CLIFF_SCALE, SLOPE_SCALE = 0.35, 0.5
"""Means of the exponential distributions of `cliff` and `slope` before anything is known. Most
trainings lose some speed at the first step over the network, and a little with each further node.
"""


class Shape(NamedTuple):
    """The way in which a job's step slows down. `overlap` is g."""

    cliff: float
    slope: float
    overlap: float

    def slowdown(self, units: float) -> float:
        """The time of a step on so many units, relative to a single unit."""
        if units <= 1:
            return 1.0
        g = self.overlap
        near = _network(self.cliff, g)
        per_unit = (_network(self.cliff + self.slope, g) - near) / (FAR - 2)
        return float((1 + (near + per_unit * max(units - 2, 0.0)) ** g) ** (1 / g))


def _network(log_slowdown: float, overlap: float) -> float:
    """The network's time that makes a step so much slower."""
    return float((math.exp(log_slowdown * overlap) - 1) ** (1 / overlap))


SHAPES = tuple(Shape(c, s, g) for g in OVERLAPS for c in CLIFFS for s in SLOPES)


@lru_cache(maxsize=1024)
def log_speedups(units: float) -> tuple[float, ...]:
    """The logarithm of the rate on so many units over the rate on a single unit, `(shape)`."""
    return tuple(math.log(units / shape.slowdown(units)) for shape in SHAPES)


class Seen(NamedTuple):
    """A size as the fit sees it: in units, with the logarithm of its rate."""

    units: float
    log_rate: float
    error: float


def seen_of(rates: Sequence[Rate], unit: int) -> tuple[Seen, ...]:
    """A rate of each size, the newest last, as the fit sees them, by size."""
    kept = rates[-MOST_SIZES:]
    least = min(rates, key=lambda r: r.nodes, default=None)
    chosen = kept if least is None or least in kept else (least, *kept[1:])
    return tuple(
        Seen(r.nodes / unit, math.log(r.per_s), min(max(r.error, LEAST_ERROR), MOST_ERROR))
        for r in sorted(chosen, key=lambda r: r.nodes)
    )


@dataclass(frozen=True)
class Belief:
    """The likelihood of each shape, `weights` (shape), and the log rate of a unit under it.

    The rate is `log_units` (shape). Both cover the shapes in `at`, which are likely at all.
    """

    at: tuple[int, ...]
    weights: tuple[float, ...]
    log_units: tuple[float, ...]


def believe(seen: Sequence[Seen]) -> Belief:
    """The belief about the shapes after the seen sizes.

    Errors are normal in the logarithm, and the rate of a unit is unknown beforehand. Under each
    shape it is the weighted mean of the values from the sizes, and the rest is its misfit.
    """
    if not seen:
        return _likely(_expected(), [0.0] * len(SHAPES))
    weights = [1 / (s.error**2 + MODEL_ERROR**2) for s in seen]
    total = math.fsum(weights)
    shares = [w / total for w in weights]
    tables = [log_speedups(s.units) for s in seen]
    columns = [[s.log_rate - v for v in table] for s, table in zip(seen, tables)]
    units = [sum(map(_times, shares, row)) for row in zip(*columns)]
    log_weights: Sequence[float] = _expected()
    for weight, column in zip(weights, columns):
        half = weight / 2
        log_weights = [w - half * (z - m) * (z - m) for w, z, m in zip(log_weights, column, units)]
    return _likely(log_weights, units)


def _times(a: float, b: float) -> float:
    return a * b


UNLIKELY = 12.0  # shapes so far below the likeliest, in the logarithm, are left out


def _likely(log_weights: Sequence[float], log_units: Sequence[float]) -> Belief:
    most = max(log_weights)
    at = [k for k, w in enumerate(log_weights) if w >= most - UNLIKELY]
    raw = [math.exp(log_weights[k] - most) for k in at]
    total = math.fsum(raw)
    return Belief(tuple(at), tuple(w / total for w in raw), tuple(log_units[k] for k in at))


@lru_cache(maxsize=1)
def _expected() -> tuple[float, ...]:
    """The logarithm of the likelihood of each shape before anything is known, `(shape)`."""
    return tuple(
        math.log(_reach(s.cliff, CLIFFS) * _reach(s.slope, SLOPES))
        - s.cliff / CLIFF_SCALE
        - s.slope / SLOPE_SCALE
        for s in SHAPES
    )


def _reach(value: float, steps: Sequence[float]) -> float:
    """The stretch for which a value of the table stands."""
    at = steps.index(value)
    return (steps[min(at + 1, len(steps) - 1)] - steps[max(at - 1, 0)]) / 2
