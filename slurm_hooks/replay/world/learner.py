"""The shipped planner without known curves: it uses the measurements of jobs.

A job reports the rate of a size after steady work there for an agent's reporting time, with an
error of `NOISE`. Errors do not average out.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slurm_hooks.learning.learned import learn
from slurm_hooks.model import Curve, Learned, Plan, Rate, Snapshot
from slurm_hooks.replay.work import Kind
from slurm_hooks.replay.world.member import Member
from slurm_hooks.replay.world.planners import Shipped
from slurm_hooks.settings.values import Settings

NOISE = 0.03
TOLD_AFTER_S = 60.0  # agents tell once a minute at most


@dataclass(eq=False)
class _Pupil:
    """A job with its measurements."""

    kind: Kind
    rates: list[Rate] = field(default_factory=list)

    @property
    def learned(self) -> Learned:
        """The knowledge from them."""
        return learn(tuple(self.rates), 1, self.kind.max_nodes, self.kind.min_nodes)


class Learner:
    """A planner that must learn the curves."""

    asks_always = True
    """A job waits on its least for so long and no longer."""

    def __init__(self, shipped: Shipped, seed: int = 1) -> None:
        self._shipped = shipped
        self._draw = random.Random(seed)
        self._pupils: dict[int, _Pupil] = {}

    def plan(self, snapshot: Snapshot, settings: Settings) -> Plan:
        """The plan of a tick."""
        return self._shipped.plan(snapshot, settings)

    def curves(self, _members: Iterable[Member]) -> dict[int, Curve]:
        """Return no curves: they must be measured."""
        return {}

    def learned(self, now: float, members: Iterable[Member]) -> dict[int, Learned]:
        """The measurements of each job until now."""
        pupils = {}
        for member in members:
            pupil = self._pupils.get(member.number) or _Pupil(member.kind)
            self._measure(pupil, member.worked(now))
            pupils[member.number] = pupil
        self._pupils = pupils
        return {number: pupil.learned for number, pupil in pupils.items()}

    def _measure(self, pupil: _Pupil, worked: Mapping[int, float]) -> None:
        """Record the rates of new sizes."""
        shown = {rate.nodes for rate in pupil.rates}
        least = pupil.kind.min_nodes
        steady = [n for n, s in worked.items() if s >= TOLD_AFTER_S and n >= least]
        for nodes in (n for n in steady if n not in shown):
            rate = pupil.kind.rates[min(nodes, pupil.kind.max_nodes)]
            noisy = rate * math.exp(self._draw.gauss(0, NOISE))
            pupil.rates.append(Rate(nodes, noisy, NOISE, at=len(pupil.rates)))
