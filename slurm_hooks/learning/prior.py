"""Predicts from other jobs how a new job scales.

Jobs of the same user, script and unit (a family) count first, then all others of the site, then a
few imagined jobs. Most trainings lose some speed at the first step over the network and a little
with each further node. The density is a mixture with a normal kernel around each fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Optional

from slurm_hooks.learning.throughput import CLIFFS, SHAPES, SLOPES, believe, seen_of
from slurm_hooks.model import Rate

CLIFF_SCALE, SLOPE_SCALE = 0.35, 0.5
"""Means of the exponential distributions of `cliff` and `slope` before anything is known."""
NOBODY = 2.0
"""The prior weighs as much as so many fits of others' jobs."""
WIDTH, FAMILY_WIDTH = 0.15, 0.04
"""The least standard deviations of a kernel: for others' jobs, and for the family's."""
FAMILY = 20.0
"""The fits of the family weigh so many times more than all others together."""
SHARED_FROM = 2
"""With so many fits of its family, a job needs no rates of its own."""
MOST_FITS = 40
MOST_SHARP, VAGUE = 10, 3.0
"""The sharpest fits of the family count, each the more the sharper it is. A fit does not count if
its area is so many times the least area. A job that has only had near sizes says little, and
most jobs of a known family have."""


@dataclass(frozen=True)
class Fit:
    """A job's scaling: its shape in two numbers, each with its standard deviation."""

    cliff: float
    slope: float
    cliff_sd: float
    slope_sd: float

    def __post_init__(self) -> None:
        numbers = (self.cliff, self.slope, self.cliff_sd, self.slope_sd)
        if not all(0 <= v < math.inf for v in numbers):
            raise ValueError(f"{numbers} is not a fit")


@dataclass(frozen=True)
class Prior:
    """The logarithm of the likelihood of each shape, `(shape)`.

    `is_shared` is true if the job's family is known well enough to rely on it alone.
    """

    log_weights: tuple[float, ...]
    is_shared: bool = False


def prior_of(family: Iterable[Fit] = (), others: Iterable[Fit] = ()) -> Prior:
    """The expectation after these fits, the newest first. Older fits are left out."""
    mine, theirs = tuple(islice(family, MOST_FITS)), tuple(islice(others, MOST_FITS))
    return _prior(mine, theirs)


@lru_cache(maxsize=512)
def _prior(family: tuple[Fit, ...], others: tuple[Fit, ...]) -> Prior:
    total = NOBODY + len(others)
    density = [NOBODY / total * base for base in _unknown()]
    for fit in others:
        density = [d + k / total for d, k in zip(density, _kernel(fit, WIDTH))]
    sharp = _sharp(family)
    scale = FAMILY / math.fsum(1 / _area(fit) for fit in sharp) if sharp else 0.0
    for fit in sharp:
        share = scale / _area(fit)
        density = [d + share * k for d, k in zip(density, _kernel(fit, FAMILY_WIDTH))]
    return Prior(tuple(math.log(max(d, 1e-300)) for d in density), len(family) >= SHARED_FROM)


def fit_of(rates: Sequence[Rate], unit: int) -> Optional[Fit]:
    """The fit of a job from rates that count (`drift.current`). None with fewer than two sizes.

    No fit of other jobs is in it, so that their reports are not counted twice.
    """
    seen = seen_of(rates, unit)
    if len(seen) < 2:
        return None
    belief = believe(seen, prior_of().log_weights)
    cliffs, slopes = [s.cliff for s in SHAPES], [s.slope for s in SHAPES]
    cliff, slope = belief.mean(cliffs), belief.mean(slopes)
    cliff_sd = math.sqrt(belief.mean([(v - cliff) ** 2 for v in cliffs]))
    slope_sd = math.sqrt(belief.mean([(v - slope) ** 2 for v in slopes]))
    return Fit(cliff, slope, cliff_sd, slope_sd)


@lru_cache(maxsize=1)
def _unknown() -> tuple[float, ...]:
    return _normalised(
        [
            _cell(s.cliff, s.slope) * math.exp(-s.cliff / CLIFF_SCALE - s.slope / SLOPE_SCALE)
            for s in SHAPES
        ]
    )


@lru_cache(maxsize=512)
def _kernel(fit: Fit, width: float) -> tuple[float, ...]:
    wide_c, wide_s = math.hypot(fit.cliff_sd, width), math.hypot(fit.slope_sd, width)
    return _normalised(
        [
            _cell(s.cliff, s.slope)
            * math.exp(
                -(((s.cliff - fit.cliff) / wide_c) ** 2 + ((s.slope - fit.slope) / wide_s) ** 2) / 2
            )
            for s in SHAPES
        ]
    )


def _sharp(family: Sequence[Fit]) -> list[Fit]:
    ranked = sorted(family, key=_area)[:MOST_SHARP]
    return [fit for fit in ranked if _area(fit) <= VAGUE * _area(ranked[0])]


def _area(fit: Fit) -> float:
    """The area of the plane that its kernel covers."""
    return math.hypot(fit.cliff_sd, FAMILY_WIDTH) * math.hypot(fit.slope_sd, FAMILY_WIDTH)


def _normalised(values: Sequence[float]) -> tuple[float, ...]:
    total = math.fsum(values)
    return tuple(v / total for v in values) if total > 0 else tuple(1 / len(values) for _ in values)


@lru_cache(maxsize=2048)
def _cell(cliff: float, slope: float) -> float:
    """The area of the plane for which a shape of the table stands."""
    return _reach(cliff, CLIFFS) * _reach(slope, SLOPES)


def _reach(value: float, steps: Sequence[float]) -> float:
    at = steps.index(value)
    low = steps[max(at - 1, 0)]
    high = steps[min(at + 1, len(steps) - 1)]
    return (high - low) / 2
