"""Judge which agents are alive, by the sight of a single observer on its own clock.

Clocks of nodes differ, so a heartbeat is a counter. It counts for how long the counter has not
changed while this observer itself was awake and could read. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from slurm_hooks.elastic.rendezvous.state import Phase, State

NEIGHBOURS = 2
BLOCK = 64


def watched(state: State, me: str) -> tuple[str, ...]:
    """Return the agents that the agent `me` watches.

    These are its two predecessors. The head of a block of 64 also watches all of that block, and
    the first head all the other heads. So every loss is seen even if the neighbours are lost as
    well, and no agent watches more than 128 of 4,096.
    """
    ring = _ring(state, me)
    if me not in ring:
        return ()
    at = ring.index(me)
    before = [ring[(at - step) % len(ring)] for step in range(1, NEIGHBOURS + 1)]
    block = ring[at + 1 : at + BLOCK] if at % BLOCK == 0 else []
    heads = ring[BLOCK::BLOCK] if at == 0 else []
    return tuple(dict.fromkeys(t for t in (*block, *heads, *before) if t != me))


def watchers(state: State, me: str) -> frozenset[str]:
    """Return the agents that watch the agent `me`."""
    ring = _ring(state, me)
    if me not in ring:
        return frozenset()
    at = ring.index(me)
    after = [ring[(at + step) % len(ring)] for step in range(1, NEIGHBOURS + 1)]
    head = ring[at - at % BLOCK]
    return frozenset((*after, head, *ring[:1] * (at % BLOCK == 0))) - {me}


def _ring(state: State, me: str) -> list[str]:
    return [m.token for m in state.members if m.phase is not Phase.DONE or m.token == me]


class Watch:
    """Remembers when each watched counter last changed (seconds of a monotonic clock)."""

    def __init__(self, keep_alive_s: float) -> None:
        self._keep_alive_s = keep_alive_s
        self._changed: dict[str, tuple[int | None, float]] = {}
        self._observed_at: float | None = None

    def reset(self) -> None:
        """Forget all readings: this observer was blind, so silence proves no death."""
        self._changed.clear()

    def observe(self, now: float, beats: Mapping[str, int | None]) -> dict[str, float]:
        """Take in a reading of the watched counters. Return seconds since each changed."""
        if self._observed_at is not None and now - self._observed_at > self._keep_alive_s / 2:
            self.reset()  # suspended, or the file system stood still for this observer too
        self._observed_at = now
        previous, self._changed = self._changed, {}
        for token, count in beats.items():
            before = previous.get(token)
            is_same = before is not None and before[0] == count
            self._changed[token] = (count, before[1] if before and is_same else now)
        return {token: now - at for token, (_, at) in self._changed.items()}


class Unchanged:
    """For how long a value has not changed."""

    def __init__(self) -> None:
        self._value: object = None
        self._since: float | None = None

    def observe(self, now: float, value: object) -> float:
        """Seconds since `value` last changed."""
        if self._since is None or value != self._value:
            self._value, self._since = value, now
        return now - self._since
