"""Keep the newest rate of each size that an agent has seen."""

from __future__ import annotations

from typing import Optional

from slurm_hooks.elastic.batch.progress_entry import (
    Progress,
    ToldPauses,
    ToldRate,
    differs,
    is_due,
)
from slurm_hooks.elastic.steady import Steady
from slurm_hooks.words.comment import SIZES

KEPT = 64  # sizes
_ALIKE = 0.1  # batches that differ by less count as equal: their sizes vary a little


class Rates:
    """The rates over all rounds of an agent."""

    def __init__(self) -> None:
        self._newest: dict[int, ToldRate] = {}
        self._in_samples = True
        self._new: dict[int, int] = {}  # by size, when a changed rate was measured

    def note(self, size: int, measured: Steady, at: int) -> None:
        """Note the rate `measured` at this size until `at` (unix seconds). Samples and steps cannot
        be compared: the newest rate decides which of them count.
        """
        in_samples = measured.batch > 0
        if in_samples is not self._in_samples:
            self._newest.clear()
            self._in_samples = in_samples
        per_s = measured.per_s if in_samples else measured.per_s * size
        batch = self._known_batch(size, measured.batch)
        self._newest.pop(size, None)
        self._newest[size] = ToldRate(size, per_s, measured.error, at, batch)
        while len(self._newest) > KEPT:
            del self._newest[next(iter(self._newest))]

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
        """Return the newest sizes, the newest last. A size keeps its reported rate while that still
        holds.
        """
        known = {rate.nodes: rate for rate in reported.rates} if reported else {}
        if reported and reported.in_samples is not self._in_samples:
            known = {}
        newest = list(self._newest.values())[-SIZES:]
        rates = [self._to_report(known.get(rate.nodes), rate) for rate in newest]
        rates.sort(key=lambda rate: rate.at)
        return Progress(tuple(rates), self._in_samples, sync, pauses)

    def _to_report(self, reported: Optional[ToldRate], rate: ToldRate) -> ToldRate:
        if reported is None or differs(reported, rate):
            self._new[rate.nodes] = rate.at
            return rate
        is_new = self._new.get(rate.nodes) == reported.at
        return rate if is_due(reported, rate, is_new) else reported
