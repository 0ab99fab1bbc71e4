"""When copies are taken although no process is about to end.

A process that can hear that it is about to end copies its state then. Copies ahead of that are for
two kinds of trainings.

One is exposed for more than a trifle of its time: a lost peer would leave nothing whole behind. An
optimizer's own part of a step comes to its end whatever happens elsewhere, so it is waited for.
But between the steps of two optimizers (a GAN's), while one computes the loss again (LBFGS), and
between the last and `reached` (a script may average a metric there) collectives run while the state
is torn; if a peer is lost meanwhile, that holds for all survivors.

The other kind gets no signal: its backend ends a process whose peer is lost. Its state is always
copied ahead.

All processes wait for the slowest, so nodes that copy after different steps would each stall the
others. A copy is taken where the step passes a multiple of a power of two: nodes whose copies take
unequal time still copy after the same steps.

Pure: times are seconds of a monotonic clock.
"""

from __future__ import annotations

import math

TRIFLE = 0.05  # of the time
COST = 0.004  # of the time, that copies may take
EVERY_S = 1.0  # no pause is shorter


class Exposure:
    """Of one training. `began`: now. `pause_s`: what should lie between two copies; it is at least
    half of that, and mostly up to twice as much."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._open_since: float | None = None
        self._exposed_s = 0.0
        self.pause_s = EVERY_S
        self._first = self._step = -1  # since the last copy, the first and the newest

    def open(self, now: float) -> None:
        """The state is torn, and an optimizer's own part is over."""
        if self._open_since is None:
            self._open_since = now

    def close(self, now: float) -> None:
        """An optimizer goes on, or the state is whole."""
        if self._open_since is not None:
            self._exposed_s += now - self._open_since
            self._open_since = None

    def share(self, now: float) -> float:
        """Of the time since the last copy, 0 to 1."""
        return self._exposed_s / (now - self._began) if now > self._began else 0.0

    def is_copy_due(self, now: float, step: int, always: bool = False) -> bool:
        """Whether a copy at this boundary is worth its price. To be asked at each boundary."""
        before, self._step = self._step, step
        self._first = step if self._first < 0 else self._first
        if now < self._began + self.pause_s / 2 or not (always or self.share(now) > TRIFLE):
            return False
        stride = self._stride(now)
        return step // stride > before // stride

    def _stride(self, now: float) -> int:
        """The smallest power of two whose steps take a pause at least."""
        step_s = (now - self._began) / max(1, self._step - self._first)
        return 1 << (math.ceil(self.pause_s / step_s) - 1).bit_length()

    def copied(self, now: float, took_s: float) -> float:
        """A copy is there; returns by how much it may be behind before the next one is."""
        self.pause_s = max(EVERY_S, took_s / COST)
        self._began, self._exposed_s, self._first = now, 0.0, self._step
        return 2.5 * self.pause_s + 2 * took_s

    def give_up(self) -> None:
        """There is no room for copies."""
        self.pause_s = float("inf")
