"""For how much of the time a lost peer would leave nothing whole behind.

An optimizer's own part of a step comes to its end whatever happens elsewhere, so it is waited for.
But between the steps of two optimizers (a GAN's), while one computes the loss again (LBFGS), and
between the last and `reached` (a script may average a metric there) collectives run while the state
is torn; if a peer is lost meanwhile, that holds for all survivors. Where this is more than a
trifle, copies at boundaries limit what it costs; they are taken so seldom that they cost little.
Pure: times are seconds of a monotonic clock.
"""

from __future__ import annotations

TRIFLE = 0.05  # of the time
COST = 0.004  # of the time, that copies may take
EVERY_S = 1.0  # not more often than that


class Exposure:
    """Of one training. `began`: now."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._open_since: float | None = None
        self._exposed_s = 0.0
        self._next_at = began + EVERY_S

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

    def is_copy_due(self, now: float) -> bool:
        """Whether a copy at this boundary is worth its price."""
        return now >= self._next_at and self.share(now) > TRIFLE

    def copied(self, now: float, took_s: float) -> float:
        """A copy is there; returns the seconds until the next."""
        pause_s = max(EVERY_S, took_s / COST)
        self._began, self._exposed_s, self._next_at = now, 0.0, now + pause_s
        return pause_s

    def give_up(self) -> None:
        """There is no room for copies."""
        self._next_at = float("inf")
