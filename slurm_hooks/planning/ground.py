"""What every decision of a tick starts from: one look at the cluster, and the site's settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from slurm_hooks.model import Slurm, Snapshot
from slurm_hooks.settings.values import Settings


@dataclass(frozen=True)
class Ground:
    """What was `seen`, and the settings by which it is judged."""

    seen: Snapshot
    settings: Settings

    @cached_property
    def now(self) -> datetime:
        """The moment for which everything is decided: slurmctld's clock."""
        return self.seen.now

    @cached_property
    def slurm(self) -> Slurm:
        """Slurm's own settings."""
        return self.seen.slurm

    @cached_property
    def horizon(self) -> timedelta:
        """How far the allocator looks ahead."""
        return timedelta(seconds=self.settings.plan.horizon_s)

    @cached_property
    def longest_lease(self) -> timedelta:
        """The longest lease that a fragment gets at once."""
        return timedelta(seconds=self.settings.lease.length_s)

    @cached_property
    def shortest_hole(self) -> timedelta:
        """The shortest hole in which anything starts."""
        return timedelta(seconds=self.settings.lease.shortest_hole_s)

    @cached_property
    def until_next(self) -> timedelta:
        """The time until the next tick."""
        return timedelta(seconds=self.settings.tick.every_s)
