"""The planners of a replay's ticks."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from slurm_hooks.allocation.objectives import OBJECTIVES, Objective
from slurm_hooks.model import Curve, Learned, Plan, Snapshot
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.replay.world.member import Member
from slurm_hooks.settings.values import Settings


class Planner(Protocol):
    """Plans ticks, and reports the curves of jobs."""

    @property
    def asks_always(self) -> bool:
        """True if its plans depend on time in more ways than `quiet` knows."""

    def plan(self, snapshot: Snapshot, settings: Settings) -> Plan:
        """The plan of a tick."""

    def curves(self, members: Iterable[Member]) -> dict[int, Curve]:
        """The curves from other sources, by job number."""

    def learned(self, now: float, members: Iterable[Member]) -> dict[int, Learned]:
        """The measurements of jobs, by job number."""


@dataclass(frozen=True)
class Shipped:
    """The shipped planner, with the true curve of each job."""

    objective: Objective

    @property
    def asks_always(self) -> bool:
        """True for an objective of the site, which may use the age of a job."""
        return self.objective not in OBJECTIVES.values()

    def plan(self, snapshot: Snapshot, settings: Settings) -> Plan:
        """The plan of a tick."""
        return make_plan(snapshot, settings, time.monotonic, self.objective)

    def curves(self, members: Iterable[Member]) -> dict[int, Curve]:
        """The true curves, as of jobs that were profiled."""
        return {member.number: member.curve for member in members}

    def learned(self, _now: float, _members: Iterable[Member]) -> dict[int, Learned]:
        """Return no measurements: the curves are known."""
        return {}


class Nothing:
    """A planner without actions: the machine without malleable jobs."""

    asks_always = False

    def plan(self, _snapshot: Snapshot, _settings: Settings) -> Plan:
        """No action."""
        return Plan()

    def curves(self, _members: Iterable[Member]) -> dict[int, Curve]:
        """None is needed."""
        return {}

    def learned(self, _now: float, _members: Iterable[Member]) -> dict[int, Learned]:
        """None is needed."""
        return {}
