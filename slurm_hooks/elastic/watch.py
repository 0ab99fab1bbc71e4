"""Who is alive: judged by what one observer saw on its own clock.

Clocks of nodes differ, so a heart is a counter, and what counts is for how long it has
not changed while this observer itself was awake and could read. Pure; it must not know
where the counters come from.
"""

from __future__ import annotations

from collections.abc import Mapping

from .state import Phase, State

NEIGHBOURS = 2


def watched(state: State, me: str) -> tuple[str, ...]:
    """Whose hearts the agent `me` reads. The first member watches everybody and each
    other one its two predecessors, so that 500 agents cost about 1,500 small reads a
    beat and still notice when the first one dies."""
    ring = [m.token for m in state.members if m.phase is not Phase.DONE or m.token == me]
    if me not in ring:
        return ()
    at = ring.index(me)
    if at == 0:
        return tuple(ring[1:])
    before = [ring[(at - step) % len(ring)] for step in range(1, NEIGHBOURS + 1)]
    return tuple(dict.fromkeys(t for t in before if t != me))


class Watch:
    """Remembers when each watched heart last moved (seconds of a monotonic clock)."""

    def __init__(self, keep_alive_s: float) -> None:
        self._keep_alive_s = keep_alive_s
        self._moved: dict[str, tuple[int | None, float]] = {}
        self._looked_at: float | None = None

    def reset(self) -> None:
        """Forget everything: this observer was blind, so silence means nothing."""
        self._moved.clear()

    def observe(self, now: float, beats: Mapping[str, int | None]) -> dict[str, float]:
        """Take in one reading of the watched hearts; returns for how long each is still."""
        if self._looked_at is not None and now - self._looked_at > self._keep_alive_s / 2:
            self.reset()  # suspended, or the file system stood still for us too
        self._looked_at = now
        previous, self._moved = self._moved, {}
        for token, count in beats.items():
            before = previous.get(token)
            is_still = before is not None and before[0] == count
            self._moved[token] = (count, before[1] if before and is_still else now)
        return {token: now - at for token, (_, at) in self._moved.items()}


class Quiet:
    """For how long a value has not changed."""

    def __init__(self) -> None:
        self._value: object = None
        self._since: float | None = None

    def observe(self, now: float, value: object) -> float:
        """Seconds since `value` last changed."""
        if self._since is None or value != self._value:
            self._value, self._since = value, now
        return now - self._since
