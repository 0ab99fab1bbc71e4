"""How long the state that was read last may be used without reading again.

Reading the shared directory puts load on its server; nearly always nothing has happened. So it
is read less and less often while nothing does, at once when somebody says that there is news,
and never less often than once in `longest_s`, since whoever had news may have died before
saying so. Pure: the caller brings the clock (seconds, monotonic).
"""

from __future__ import annotations

SHORTEST_S = 0.1
GROWTH = 1.5


class ReadInterval:
    """At first nobody announces news: every read is due."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._pause_s = 0.0
        self._due = float("-inf")

    def is_due(self, now: float) -> bool:
        """Whether to read again."""
        return now >= min(self._due, self._due - self._pause_s + self.longest_s)

    def has_read(self, now: float, is_news: bool) -> None:
        """The state was read; `is_news`: it was a new one."""
        grown = SHORTEST_S if is_news else max(SHORTEST_S, GROWTH * self._pause_s)
        self._pause_s = min(grown, self.longest_s)
        self._due = now + self._pause_s
