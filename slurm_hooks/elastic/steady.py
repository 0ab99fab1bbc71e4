"""The steady rate of a training, from a short history of stretches of clean time.

Pure. Clean time still contains some delays: late input, late peers, an evaluation without a
DataLoader. They make a stretch an outlier here. A lasting difference is a change of the training,
and the history before it is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Optional

KEPT = 24  # stretches
ENOUGH_S = 8.0  # of clean time for a rate
CHANGE = 0.1  # a smaller difference of the batch is no change
SPEED_CHANGE = 0.15  # a smaller difference of the speed is no change
LAST = 2  # stretches that must show a change
_NARROW = 0.05  # a stretch that differs by less is no outlier
_MOST_ERROR = 0.25  # a rate with a larger error is dropped
_BOUNDS = ((1e-3, 1e6), (1e-3, 1e9), (0.0, 1e12))  # of a stretch: numbers outside are nonsense
_FLOOR = 0.03  # the relative error of one stretch, at least


@dataclass(frozen=True)
class Stretch:
    """`steps` of the optimizer in `seconds` of clean time, with `batch` samples in each step of all
    processes together (0: unknown).
    """

    seconds: float
    steps: float
    batch: float = 0.0

    @property
    def steps_s(self) -> float:
        """Steps per second."""
        return self.steps / self.seconds

    @property
    def per_s(self) -> float:
        """Samples per second, or steps if the samples are unknown."""
        return self.steps_s * (self.batch or 1.0)


@dataclass(frozen=True)
class Steady:
    """`per_s` samples per second of all processes together (steps where `batch` is 0), with its
    relative standard error, and `batch` samples per step.
    """

    per_s: float
    error: float
    batch: float


def extended(history: Sequence[Stretch], new: Stretch) -> tuple[Stretch, ...]:
    """Return the history with the stretch `new`, at most KEPT stretches.

    If the last LAST stretches show a change, the history before it is dropped. A stretch with
    impossible numbers is ignored.
    """
    numbers = zip((new.seconds, new.steps, new.batch), _BOUNDS)
    if not all(least <= number <= most for number, (least, most) in numbers):
        return tuple(history)
    longer = (*history, new)[-KEPT:]
    before, last = longer[:-LAST], longer[-LAST:]
    return last if before and _is_change(before, last) else longer


def _is_change(before: Sequence[Stretch], last: Sequence[Stretch]) -> bool:
    batch = median(stretch.batch for stretch in before)
    if _differ(batch, [stretch.batch for stretch in last], CHANGE):
        return True
    speeds = [stretch.per_s for stretch in before]
    usual = median(speeds)
    spread = 4 * _deviation(speeds) / usual
    return _differ(usual, [stretch.per_s for stretch in last], max(SPEED_CHANGE, spread))


def _differ(usual: float, last: Sequence[float], share: float) -> bool:
    """Tell whether all of the last are above the usual value, or all below, by this share."""
    more = all(value > usual * (1 + share) for value in last)
    return more or all(value < usual * (1 - share) for value in last)


def _deviation(values: Sequence[float]) -> float:
    """Return a robust standard deviation (1.4826 times the median absolute deviation)."""
    middle = median(values)
    return 1.4826 * median(abs(value - middle) for value in values)


def steady(history: Sequence[Stretch]) -> Optional[Steady]:
    """Return the rate over the stretches that are no outliers, or `None` if they are too few."""
    if not history:
        return None
    speeds = [stretch.per_s for stretch in history]
    middle = median(speeds)
    bound = max(3 * _deviation(speeds), _NARROW * middle)
    kept = [stretch for stretch in history if abs(stretch.per_s - middle) <= bound]
    seconds = math.fsum(stretch.seconds for stretch in kept)
    if seconds < ENOUGH_S or 2 * len(kept) < len(history):
        return None
    samples = math.fsum(stretch.seconds * stretch.per_s for stretch in kept)
    per_s = samples / seconds
    error = _error(kept, per_s)
    if error > _MOST_ERROR:
        return None
    is_known = all(stretch.batch for stretch in kept)
    return Steady(per_s, error, median(stretch.batch for stretch in kept) if is_known else 0.0)


def _error(kept: Sequence[Stretch], mean: float) -> float:
    """Return the relative standard error of the mean of these stretches."""
    count = len(kept)
    squares = math.fsum((stretch.per_s / mean - 1) ** 2 for stretch in kept)
    deviation = math.sqrt(squares / (count - 1)) if count > 1 else 0.0
    return max(_FLOOR, deviation) / math.sqrt(count)
