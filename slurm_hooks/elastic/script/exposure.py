"""When to take copies although no process is about to end.

A process that hears of its end copies its state then. Copies ahead of that are for two kinds of
trainings.

The first kind is exposed for a good part of its time: a lost peer would leave no whole state
behind. An optimizer's step never depends on other processes, so we wait for it to finish. But
collectives may run while the state is torn:

* between the steps of two optimizers (a GAN's),
* while an optimizer computes the loss again (LBFGS),
* between the last step and `reached` (a script may average a metric there).

If a peer is lost then, no survivor has a whole state.

The second kind gets no signal: its backend ends a process whose peer is lost. Its state is always
copied ahead.

All processes wait for the slowest, so nodes that copy after different steps would each stall the
others. A copy is taken when the step passes a multiple of a power of two. So nodes whose copies
take unequal time still copy after the same steps.

Pure: times are seconds of a monotonic clock.
"""

from __future__ import annotations

import math

TRIFLE = 0.05  # of the time
COST = 0.004  # the share of the time that copies may take
EVERY_S = 1.0  # no pause is shorter


class Exposure:
    """The exposure of a training. `began`: now. `pause_s` is the aim for the time between two
    copies: at least half of it passes, and mostly at most twice as much.
    """

    def __init__(self, began: float) -> None:
        self._began = began
        self._open_since: float | None = None
        self._exposed_s = 0.0
        self.pause_s = EVERY_S
        self._first = self._step = -1  # the first and the newest since the last copy

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
        """Return the exposed share of the time since the last copy, 0 to 1."""
        return self._exposed_s / (now - self._began) if now > self._began else 0.0

    def is_copy_due(self, now: float, step: int, always: bool = False) -> bool:
        """Tell whether a copy at this boundary is worth its price. Call it at each boundary."""
        before, self._step = self._step, step
        self._first = step if self._first < 0 else self._first
        if now < self._began + self.pause_s / 2 or not (always or self.share(now) > TRIFLE):
            return False
        stride = self._stride(now)
        return step // stride > before // stride

    def _stride(self, now: float) -> int:
        """Return the smallest power of two whose steps take at least a pause."""
        step_s = (now - self._began) / max(1, self._step - self._first)
        return 1 << (math.ceil(self.pause_s / step_s) - 1).bit_length()

    def copied(self, now: float, took_s: float) -> float:
        """A copy was taken. Return by how many seconds it may be behind before the next."""
        self.pause_s = max(EVERY_S, took_s / COST)
        self._began, self._exposed_s, self._first = now, 0.0, self._step
        return 2.5 * self.pause_s + 2 * took_s

    def give_up(self) -> None:
        """Memory has no room for copies."""
        self.pause_s = float("inf")
