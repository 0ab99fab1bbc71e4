"""The steady rate of a training, from a short history of stretches of clean time.

Pure. What the clean time of a process does not leave out (input or others that are late, an
evaluation without a DataLoader) makes a stretch an outlier here; what stays is a change of the
training, and what was before it is forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Optional

KEPT = 24  # stretches
ENOUGH_S = 8.0  # of clean time for a rate
CHANGE = 0.1  # by so much the batch changes, at least, if it does
SPEED_CHANGE = 0.15  # the same for the speed
LAST = 2  # stretches that say so
_NARROW = 0.05  # what differs by less is no outlier
_MOST_ERROR = 0.25  # of a rate: else there is none
_BOUNDS = ((1e-3, 1e6), (1e-3, 1e9), (0.0, 1e12))  # of a stretch: what is outside is nonsense
_FLOOR = 0.03  # the relative error of one stretch, at least


@dataclass(frozen=True)
class Stretch:
    """`steps` of the optimizer in `seconds` of clean time; `batch` samples in each, of all
    processes together (0: unknown)."""

    seconds: float
    steps: float
    batch: float = 0.0

    @property
    def steps_s(self) -> float:
        """Steps a second."""
        return self.steps / self.seconds

    @property
    def per_s(self) -> float:
        """Samples a second, or steps where nobody knows how many samples those are."""
        return self.steps_s * (self.batch or 1.0)


@dataclass(frozen=True)
class Steady:
    """`per_s` samples a second of all processes together (steps where `batch` is 0), with its
    relative standard error; `batch` samples a step."""

    per_s: float
    error: float
    batch: float


def extended(history: Sequence[Stretch], new: Stretch) -> tuple[Stretch, ...]:
    """The history with one more stretch, KEPT at most, and without what was before a change that
    the last LAST stretches show. What is no measurement changes nothing."""
    numbers = zip((new.seconds, new.steps, new.batch), _BOUNDS)
    if not all(least <= number <= most for number, (least, most) in numbers):
        return tuple(history)
    longer = (*history, new)[-KEPT:]
    before, last = longer[:-LAST], longer[-LAST:]
    return last if before and _is_change(before, last) else longer


def _is_change(before: Sequence[Stretch], last: Sequence[Stretch]) -> bool:
    batch = median(one.batch for one in before)
    if _differ(batch, [one.batch for one in last], CHANGE):
        return True
    speeds = [one.per_s for one in before]
    usual = median(speeds)
    spread = 4 * _deviation(speeds) / usual
    return _differ(usual, [one.per_s for one in last], max(SPEED_CHANGE, spread))


def _differ(usual: float, last: Sequence[float], share: float) -> bool:
    """Whether all of the last are above what is usual, or all below, by this share."""
    more = all(value > usual * (1 + share) for value in last)
    return more or all(value < usual * (1 - share) for value in last)


def _deviation(values: Sequence[float]) -> float:
    """A robust standard deviation (1.4826 times the median absolute deviation)."""
    middle = median(values)
    return 1.4826 * median(abs(value - middle) for value in values)


def steady(history: Sequence[Stretch]) -> Optional[Steady]:
    """The rate over the stretches that are no outliers; None if they are too few."""
    if not history:
        return None
    speeds = [one.per_s for one in history]
    middle = median(speeds)
    bound = max(3 * _deviation(speeds), _NARROW * middle)
    kept = [one for one in history if abs(one.per_s - middle) <= bound]
    seconds = math.fsum(one.seconds for one in kept)
    if seconds < ENOUGH_S or 2 * len(kept) < len(history):
        return None
    samples = math.fsum(one.seconds * one.per_s for one in kept)
    per_s = samples / seconds
    error = _error(kept, per_s)
    if error > _MOST_ERROR:
        return None
    is_known = all(one.batch for one in kept)
    return Steady(per_s, error, median(one.batch for one in kept) if is_known else 0.0)


def _error(kept: Sequence[Stretch], mean: float) -> float:
    """The relative standard error of the mean of these stretches."""
    count = len(kept)
    squares = math.fsum((one.per_s / mean - 1) ** 2 for one in kept)
    deviation = math.sqrt(squares / (count - 1)) if count > 1 else 0.0
    return max(_FLOOR, deviation) / math.sqrt(count)
