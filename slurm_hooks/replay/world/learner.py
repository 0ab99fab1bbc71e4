"""The shipped planner without known curves: it uses the measurements of jobs.

A job reports the rate of a size after steady work there for an agent's reporting time, with an
error of `NOISE`. Errors do not average out. Jobs do not share measurements, unless the jobs of a
model are a family.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from slurm_hooks.learning.learned import learn
from slurm_hooks.learning.prior import Fit, Prior, fit_of, prior_of
from slurm_hooks.model import Curve, Learned, Plan, Rate, Snapshot
from slurm_hooks.replay.work import Kind
from slurm_hooks.replay.world.member import Member
from slurm_hooks.replay.world.planners import Shipped
from slurm_hooks.settings.values import Settings

NOISE = 0.03
TOLD_AFTER_S = 60.0  # agents tell once a minute at most
MOST_OF_FAMILY = 40
Priors = Callable[[str, Sequence[Fit]], Prior]


def priors_of(
    curves: Mapping[str, Curve], group: Callable[[str], str] = lambda name: name
) -> Priors:
    """The expectation for a model: the curves of other models, without its own group."""
    fits = {name: fit_of(_rates(curve), 1) for name, curve in curves.items()}

    @cache
    def others(mine: str) -> tuple[Fit, ...]:
        return tuple(fit for name, fit in fits.items() if fit and group(name) != mine)

    return lambda name, family: prior_of(family, others(group(name)))


def _rates(curve: Curve) -> list[Rate]:
    return [Rate(n, v, NOISE, at=0) for n, v in curve.points if n and v > 0]


@dataclass(eq=False)
class _Pupil:
    """A job with its measurements."""

    kind: Kind
    learned: Learned
    rates: list[Rate] = field(default_factory=list)


class Learner:
    """A planner that must learn the curves."""

    asks_always = True
    """A job waits on its least for so long and no longer."""

    def __init__(self, shipped: Shipped, priors: Priors, is_family: bool, seed: int = 1) -> None:
        self._shipped, self._priors, self._is_family = shipped, priors, is_family
        self._draw = random.Random(seed)
        self._pupils: dict[int, _Pupil] = {}
        self._families: dict[str, list[Fit]] = {}

    def plan(self, snapshot: Snapshot, settings: Settings) -> Plan:
        """The plan of a tick."""
        return self._shipped.plan(snapshot, settings)

    def curves(self, _members: Iterable[Member]) -> dict[int, Curve]:
        """Return no curves: they must be measured."""
        return {}

    def learned(self, now: float, members: Iterable[Member]) -> dict[int, Learned]:
        """The measurements of each job until now."""
        by_number = {member.number: member for member in members}
        for number in self._pupils.keys() - by_number.keys():
            self._leave(self._pupils.pop(number))
        for number, member in by_number.items():
            if number not in self._pupils:
                self._pupils[number] = _Pupil(member.kind, self._known(member.kind, []))
            self._measure(self._pupils[number], member.worked(now))
        return {number: self._pupils[number].learned for number in by_number}

    def _known(self, kind: Kind, rates: Sequence[Rate]) -> Learned:
        family = self._families.get(kind.name, [])[:MOST_OF_FAMILY]
        prior = self._priors(kind.name, tuple(family))
        return learn(rates, prior, 1, kind.max_nodes, kind.min_nodes)

    def _leave(self, pupil: _Pupil) -> None:
        fit = fit_of(pupil.rates, 1) if self._is_family else None
        if fit:
            self._families.setdefault(pupil.kind.name, []).insert(0, fit)

    def _measure(self, pupil: _Pupil, worked: Mapping[int, float]) -> None:
        """Record the rates of new sizes."""
        shown = {rate.nodes for rate in pupil.rates}
        least = pupil.kind.min_nodes
        steady = [n for n, s in worked.items() if s >= TOLD_AFTER_S and n >= least]
        new = [n for n in steady if n not in shown]
        for nodes in new:
            rate = pupil.kind.rates[min(nodes, pupil.kind.max_nodes)]
            noisy = rate * math.exp(self._draw.gauss(0, NOISE))
            pupil.rates.append(Rate(nodes, noisy, NOISE, at=len(pupil.rates)))
        if new:
            pupil.learned = self._known(pupil.kind, pupil.rates)
