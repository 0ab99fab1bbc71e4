"""The newest rate of each size that an agent has seen."""

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
_ALIKE = 0.1  # batches that differ by less are taken for the same: not all are equally large


class Rates:
    """Over all rounds of one agent."""

    def __init__(self) -> None:
        self._found: dict[int, ToldRate] = {}
        self._in_samples = True
        self._new: dict[int, int] = {}  # by size, when what was not told before was found

    def note(self, size: int, found: Steady, at: int) -> None:
        """What was found at this size until `at` (unix seconds). Samples and steps cannot be
        compared: the newest says which of them count."""
        in_samples = found.batch > 0
        if in_samples is not self._in_samples:
            self._found.clear()
            self._in_samples = in_samples
        per_s = found.per_s if in_samples else found.per_s * size
        batch = self._known_batch(size, found.batch)
        self._found.pop(size, None)
        self._found[size] = ToldRate(size, per_s, found.error, at, batch)
        while len(self._found) > KEPT:
            del self._found[next(iter(self._found))]

    def _known_batch(self, size: int, batch: float) -> float:
        """The batch in the words of an earlier rate: a node's or a worker's is the same, or the
        whole."""
        for known in reversed(self._found.values()):
            for same in (known.batch / known.nodes * size, known.batch):
                if abs(batch - same) < _ALIKE * same:
                    return same
        return batch

    def as_progress(
        self, told: Optional[Progress], pauses: ToldPauses, sync: Optional[float]
    ) -> Progress:
        """The newest sizes, the newest last; what was told of one, as long as that holds."""
        known = {rate.nodes: rate for rate in told.rates} if told else {}
        if told and told.in_samples is not self._in_samples:
            known = {}
        newest = list(self._found.values())[-SIZES:]
        rates = [self._to_tell(known.get(found.nodes), found) for found in newest]
        rates.sort(key=lambda rate: rate.at)
        return Progress(tuple(rates), self._in_samples, sync, pauses)

    def _to_tell(self, told: Optional[ToldRate], found: ToldRate) -> ToldRate:
        if told is None or differs(told, found):
            self._new[found.nodes] = found.at
            return found
        is_new = self._new.get(found.nodes) == told.at
        return found if is_due(told, found, is_new) else told
