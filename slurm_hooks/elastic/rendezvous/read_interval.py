"""How long what was read last may stand for what is there now.

Looking at the shared directory costs its server; nearly always nothing has happened. So one
looks less and less often while nothing does, at once when somebody says that there is news,
and never less often than once in `longest_s`, since whoever had news may have died before
telling. Pure: the caller brings the clock (seconds, monotonic).
"""

from __future__ import annotations

SHORTEST_S = 0.1
GROWTH = 1.5


class ReadInterval:
    """Nobody has promised to tell at first: every look is due."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._pause_s = 0.0
        self._due = float("-inf")

    def is_due(self, now: float) -> bool:
        """Whether to look again."""
        return now >= min(self._due, self._due - self._pause_s + self.longest_s)

    def has_looked(self, now: float, is_news: bool) -> None:
        """Somebody has looked; `is_news`: and found what was not known."""
        grown = SHORTEST_S if is_news else max(SHORTEST_S, GROWTH * self._pause_s)
        self._pause_s = min(grown, self.longest_s)
        self._due = now + self._pause_s
