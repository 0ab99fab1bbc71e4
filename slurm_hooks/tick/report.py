"""Reports the observations, decisions, writes and cost of a tick."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from slurm_hooks.model import Plan, Snapshot
from slurm_hooks.model.unused import Unused
from slurm_hooks.slurm.live import DENIED, Asked


def lacks_rights(refused: Iterable[str]) -> bool:
    """Whether Slurm refused a change because of the user. It will refuse the next change too."""
    return any(DENIED.search(line) for line in refused)


@dataclass(frozen=True)
class TickReport:
    """The observations, decisions and writes of a tick.

    `unused` is the unused share, by resource.
    """

    at: datetime
    plan: Plan
    snapshot: Snapshot
    refused: tuple[str, ...]
    asked: tuple[Asked, ...]
    seconds: float
    is_dry: bool
    unused: Mapping[str, Unused] = field(default_factory=dict)

    @property
    def lacks_rights(self) -> bool:
        """Whether the user of the tick lacked rights."""
        return lacks_rights(self.refused)

    @property
    def rpcs(self) -> int:
        """Remote procedure calls made to slurmctld."""
        return sum(a.rpcs for a in self.asked)
