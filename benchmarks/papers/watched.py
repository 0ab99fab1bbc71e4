"""A simulation whose policy watches the jobs at work, and decides once it has seen enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from papers.counts import Move
from papers.question import Policy
from papers.rules import Rules
from papers.simulate import Simulation
from slurm_hooks.replay.record import Record
from slurm_hooks.replay.work import Kind, Queue


class Watcher(Policy, Protocol):
    """A policy that is shown the jobs before each question about them.

    It must also be asked at `wake_s`, even without a change until then.
    """

    wake_s: float

    def look(self, now: float, jobs: Iterable[tuple[int, Kind, Mapping[int, float]]]) -> None:
        """Number, kind and steady seconds of each size, of the jobs of the next question."""


class WatchedSimulation(Simulation):
    """A run of a policy that learns."""

    def __init__(
        self, record: Record, queue: Queue, jobs: int, policy: Watcher, rules: Rules
    ) -> None:
        self._watcher = policy
        super().__init__(record, queue, jobs, policy, rules)

    def _plan(self, now: float) -> list[Move]:
        self._watcher.look(now, ((j.number, j.kind, j.worked(now)) for j in self.jobs))
        moves = super()._plan(now)
        self._wake_s = self._watcher.wake_s
        return moves
