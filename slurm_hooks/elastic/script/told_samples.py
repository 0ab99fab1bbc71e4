"""How many samples a step takes, by what a script has reported."""

from __future__ import annotations

_ALIKE = 0.2  # what differs by less is smoothed
_NEW = 0.2


class ToldSamples:
    """`per_step` of all processes together, 0 as long as nobody knows."""

    def __init__(self) -> None:
        self.per_step = 0.0
        self._samples, self._step, self._is_first = 0, 0, True

    def see(self, samples: int, step: int) -> bool:
        """The training has learnt from so many samples after `step` steps (0: nobody counts steps,
        so this is one). Whether they are more than at the time before: a training that resumes may
        begin with less."""
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
