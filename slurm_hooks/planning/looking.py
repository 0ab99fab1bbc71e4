"""The curve on which each job is weighed: its own, what was learned of it, or an equal share.

And which jobs get a size only so that it can be seen how fast they are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional, Union

from slurm_hooks.allocation.curves import equal_share, equal_shares, pool_curve
from slurm_hooks.learning.probe import (
    Costs,
    Looker,
    Probe,
    Purpose,
    judge,
    optimistic,
    price_of,
)
from slurm_hooks.model import Curve, FragmentState, Learned, Plan, Reason, Snapshot, Why
from slurm_hooks.model.plural import plural
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.situation import Situation

TOLD_AFTER_S = 60.0
"""Seconds of steady work after which a job tells a rate, at the latest."""
PATIENCE_S = 300.0
"""A size at which a job has told nothing for so long is not looked at any longer: starting, and
compiling its model, may take minutes."""


@dataclass(frozen=True)
class Weighing:
    """On which curve a job is weighed, and the size that it is given only to be looked at, or why
    there is none."""

    curve: Curve
    look: Union[Probe, Why]

    def most(self, reachable: int) -> int:
        """The most nodes to ask for: a look at a size is no more than that size."""
        return min(reachable, self.look.nodes) if isinstance(self.look, Probe) else reachable


def weighings(ground: Ground, situations: Sequence[Situation], nodes: int) -> tuple[Weighing, ...]:
    """Of each job, in their order; all of them share `nodes`.

    Only a job of which something is `learned`, be it nothing yet, is looked at, and only while they
    want more than there is: else there is nothing to choose between them.
    """
    wishes = [min(max(s.reachable, 1), nodes) for s in situations]
    shares = equal_shares(wishes, nodes, [min(s.least, w) for s, w in zip(situations, wishes)])
    settings, plan = ground.settings, ground.settings.plan
    costs = Costs(TOLD_AFTER_S + settings.tick.every_s, plan.grow_s, plan.shrink_s)
    lookers = {
        s.job.job_id: _looker(ground, s, learned, share)
        for s, share in zip(situations, shares)
        if (learned := _learned(ground, s)) is not None
    }
    others = sum(share for s, share in zip(situations, shares) if s.job.job_id not in lookers)
    price = price_of(lookers.values(), max(nodes - others, 0))
    is_scarce = sum(wishes) > nodes
    budget = settings.learn.probe_budget

    def look(situation: Situation) -> Union[Probe, Why]:
        looker = lookers.get(situation.job.job_id)
        if looker is None:
            return _kept_out(ground, situation)
        return judge(looker, costs, price, budget) if is_scarce else Why.PLENTY

    return tuple(_weighing(ground, s, share, look(s)) for s, share in zip(situations, shares))


def _kept_out(ground: Ground, situation: Situation) -> Why:
    """Why a job is none of those that may be looked at."""
    if situation.job.job_id in ground.seen.curves:
        return Why.GIVEN
    if situation.is_apart:
        return Why.ALONE
    return Why.SILENT_FAMILY if situation.job.tells_rates else Why.ENGINE


def _learned(ground: Ground, situation: Situation) -> Optional[Learned]:
    """What is known of a job that may be looked at."""
    job = situation.job
    is_known = job.job_id in ground.seen.curves
    may = job.tells_rates and not is_known and not situation.is_apart
    return ground.seen.learned.get(job.job_id) if may else None


def _looker(ground: Ground, situation: Situation, learned: Learned, share: int) -> Looker:
    job, now = situation.job, ground.now
    starts = [f.start for f in job.active if f.start is not None]
    running = sum(len(f.nodes) for f in situation.staying if f.state is FragmentState.RUNNING)
    is_whole = running == situation.size > 0
    changes = [*starts, *(f.mark.noticed for f in job.fragments if f.mark.noticed is not None)]
    quiet_s = (now - max(changes)).total_seconds() if changes else 0.0
    patience_s = PATIENCE_S if job.has_agent else TOLD_AFTER_S
    age_s = (now - min(starts)).total_seconds() if starts else 0.0
    whole = job.since(situation.least)
    told_nothing_s = 0.0 if whole is None else (now - whole).total_seconds()
    return Looker(
        name=str(job.job_id),
        learned=learned,
        unit=job.request.unit,
        least=situation.least,
        most=situation.reachable,
        nodes=situation.size,
        share=share,
        age_s=age_s,
        redone_s=situation.redone_s,
        is_hopeless=is_whole and quiet_s > patience_s,
        is_silent=not learned.sizes_seen and told_nothing_s > patience_s,
    )


def _weighing(
    ground: Ground, situation: Situation, share: int, look: Union[Probe, Why]
) -> Weighing:
    job = situation.job
    if not job.way.works_as_one:
        return Weighing(pool_curve(share, situation.most, job.request.unit), look)
    if job.job_id in ground.seen.curves:
        return Weighing(ground.seen.curves[job.job_id], look)
    learned = ground.seen.learned.get(job.job_id, Learned())
    if isinstance(look, Probe) and look.purpose is Purpose.LARGER:
        return Weighing(optimistic(learned, job.request.unit), look)
    if isinstance(look, Probe):
        return Weighing(equal_share(look.nodes, look.nodes), look)
    if learned.curve:
        return Weighing(learned.curve, look)
    least, request = max(share, situation.least), job.request
    return Weighing(equal_share(least, request.max_nodes, request.unit), look)


def looked_at(plan: Plan, snapshot: Snapshot) -> frozenset[int]:
    """The jobs that are to have a size which they have not shown, so that it is seen.

    One that is to be seen on more nodes than it can be given now has what it would have anyway.
    """
    shown = {job_id: learned.sizes_seen for job_id, learned in snapshot.learned.items()}
    return frozenset(
        job.job_id
        for job in plan.jobs
        if job.nodes_probed and job.nodes_planned not in shown.get(job.job_id, ())
    )


def reason_of(probe: Probe) -> Reason:
    """Why the job has the size at which it is looked at."""
    text = f"is looked at on {plural(probe.nodes, 'node')}, to learn {probe.purpose.value}"
    return Reason(Why.LOOKED_AT, text)
