"""The work of slurmctld for each user, from sdiag's statistics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_ROW = re.compile(
    r"\s+(\S+)\s*\(\s*\d+\)\s+count:(\d{1,18})\s+ave_time:\d+\s+total_time:(\d{1,18})", re.ASCII
)


@dataclass(frozen=True)
class Cost:
    """Remote procedure calls, and slurmctld's seconds for them."""

    rpcs: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Window:
    """The requests of each user to slurmctld within `seconds`."""

    seconds: float
    users: tuple[tuple[str, Cost], ...]

    @property
    def rpcs_per_min(self) -> float:
        """Calls of all users in a minute."""
        return 60.0 * sum(cost.rpcs for _, cost in self.users) / max(self.seconds, 1e-9)

    @property
    def load(self) -> float:
        """The share of the time in which slurmctld worked, summed over its threads."""
        return sum(cost.seconds for _, cost in self.users) / max(self.seconds, 1e-9)


def parse_cost(text: str) -> dict[str, Cost]:
    """Cost by user since slurmctld's start or a reset of its statistics, empty without them."""
    part = text.partition("statistics by user")[2].partition("\n\n")[0]
    rows = (_ROW.fullmatch(line) for line in part.splitlines())
    return {m.group(1): Cost(int(m.group(2)), int(m.group(3)) / 1e6) for m in rows if m}


def window(before: Mapping[str, Cost], after: Mapping[str, Cost], seconds: float) -> Window:
    """The requests between two readings. If the statistics were reset, count from zero."""
    users = []
    for name, late in sorted(after.items()):
        early = before.get(name, Cost())
        early = early if early.rpcs <= late.rpcs else Cost()
        if late.rpcs > early.rpcs:
            users.append((name, Cost(late.rpcs - early.rpcs, late.seconds - early.seconds)))
    return Window(seconds, tuple(users))
