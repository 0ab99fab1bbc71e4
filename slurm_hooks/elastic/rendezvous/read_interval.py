"""How long the state that was read last may be used before the next read.

Reads of the shared directory put load on its server, and mostly show no change. So a read comes at
once when another agent announces news, and otherwise less and less often. It comes at least once in
`longest_s`, since an agent with news may have died before it announced them. Pure: the caller
passes the time (seconds, monotonic).
"""

from __future__ import annotations

SHORTEST_S = 0.1
GROWTH = 1.5


class ReadInterval:
    """At first no agent announces news, so every read is due."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._pause_s = 0.0
        self._due = float("-inf")

    def is_due(self, now: float) -> bool:
        """Tell whether to read again."""
        return now >= min(self._due, self._due - self._pause_s + self.longest_s)

    def has_read(self, now: float, is_news: bool) -> None:
        """The state was read. `is_news`: it was new."""
        grown = SHORTEST_S if is_news else max(SHORTEST_S, GROWTH * self._pause_s)
        self._pause_s = min(grown, self.longest_s)
        self._due = now + self._pause_s
