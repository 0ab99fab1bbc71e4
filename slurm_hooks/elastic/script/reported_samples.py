"""Work out how many samples a step takes from a script's reports."""

from __future__ import annotations

_ALIKE = 0.2  # a smaller difference is smoothed
_NEW = 0.2


class ReportedSamples:
    """`per_step`: samples per step of all processes together, 0 while unknown."""

    def __init__(self) -> None:
        self.per_step = 0.0
        self._samples, self._step, self._is_first = 0, 0, True

    def see(self, samples: int, step: int) -> bool:
        """The training has learnt from `samples` samples after `step` steps (0: steps are not
        counted, so this is one step).

        Return whether they are more than at the last report. A training that resumes may begin with
        fewer.
        """
        more, steps = samples - self._samples, (step - self._step) if step else 1
        if self._is_first or more < 0:
            self._is_first, self._samples, self._step = False, samples, step
            return False
        if more == 0 or steps <= 0:
            return False
        self._samples, self._step = samples, step
        self._learn(more / steps)
        return True

    def _learn(self, per_step: float) -> None:
        known = self.per_step
        is_alike = known and abs(per_step - known) < _ALIKE * known
        self.per_step = known + _NEW * (per_step - known) if is_alike else per_step
