"""Keep the newest rate of each size that an agent has seen."""

from __future__ import annotations

import math
from typing import Optional

from slurm_hooks.elastic.batch.progress_entry import (
    Progress,
    ToldPauses,
    ToldRate,
    differs,
    is_due,
)
from slurm_hooks.elastic.steady import Steady
from slurm_hooks.protocol.comment import SIZES

KEPT = 64  # sizes
CONFIRM_S = 100  # another rate of a known size counts after so long: before, it may be an accident
_CHANGE = 0.05  # in the logarithm. A smaller difference of a rate is no change of the training
_SIGMAS = 4.0
_ALIKE = 0.1  # batches that differ by less count as equal: their sizes vary a little


class Rates:
    """The rates over all rounds of an agent, and those that its fragment reported before."""

    def __init__(self) -> None:
        self._newest: dict[int, ToldRate] = {}
        self._in_samples = True
        self._doubt: Optional[tuple[int, int]] = None  # the size with another rate, and since when

    def recall(self, earlier: Optional[Progress]) -> None:
        """Begin with the rates of an earlier run of this fragment."""
        if earlier is not None:
            self._in_samples = earlier.in_samples
            self._newest = {rate.nodes: rate for rate in earlier.rates}

    def note(self, size: int, measured: Steady, at: int) -> None:
        """Note the rate `measured` at this size until `at` (unix seconds).

        Samples and steps cannot be compared: the newest rate decides which of them count. If the
        rate of a known size is another for CONFIRM_S, the training has changed, and the rates of
        all other sizes are void.
        """
        in_samples = measured.batch > 0
        if in_samples is not self._in_samples:
            self._newest.clear()
            self._in_samples = in_samples
        per_s = measured.per_s if in_samples else measured.per_s * size
        rate = ToldRate(size, per_s, measured.error, at, self._known_batch(size, measured.batch))
        if self._is_doubtful(rate):
            if not self._has_lasted(rate):
                return
            self._newest.clear()
        self._doubt = None
        self._newest.pop(size, None)
        self._newest[size] = rate
        while len(self._newest) > KEPT:
            del self._newest[next(iter(self._newest))]

    def _is_doubtful(self, rate: ToldRate) -> bool:
        known = self._newest.get(rate.nodes)
        if known is None or not math.isclose(known.batch, rate.batch, rel_tol=_ALIKE):
            return False
        allowed = _CHANGE + _SIGMAS * math.hypot(known.error, rate.error)
        return abs(math.log(rate.per_s / known.per_s)) > allowed

    def _has_lasted(self, rate: ToldRate) -> bool:
        if self._doubt is None or self._doubt[0] != rate.nodes or self._doubt[1] > rate.at:
            self._doubt = rate.nodes, rate.at
        return rate.at - self._doubt[1] >= CONFIRM_S

    def _known_batch(self, size: int, batch: float) -> float:
        """Return the batch as an earlier rate counts it: the same for each node or worker, or the
        same in all.
        """
        for known in reversed(self._newest.values()):
            for same in (known.batch / known.nodes * size, known.batch):
                if abs(batch - same) < _ALIKE * same:
                    return same
        return batch

    def as_progress(
        self, reported: Optional[Progress], pauses: ToldPauses, sync: Optional[float]
    ) -> Progress:
        """Return the smallest size and the newest sizes, the newest last. A size keeps its reported
        rate while that still holds.
        """
        known = {rate.nodes: rate for rate in reported.rates} if reported else {}
        if reported and reported.in_samples is not self._in_samples:
            known = {}
        chosen = list(self._newest)[-SIZES:]
        if self._newest and min(self._newest) not in chosen:
            chosen[0] = min(self._newest)
        rates = [_to_report(known.get(size), self._newest[size]) for size in chosen]
        rates.sort(key=lambda rate: rate.at)
        return Progress(tuple(rates), self._in_samples, sync, pauses)


def _to_report(reported: Optional[ToldRate], rate: ToldRate) -> ToldRate:
    is_other = reported is None or differs(reported, rate) or is_due(reported, rate)
    return rate if reported is None or is_other else reported
