"""The curve on which each job is weighed: its own, what was learned of it, or an equal share.

And which jobs begin on their least, so that it is seen how fast they are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.allocation.curves import equal_share, equal_shares, pool_curve
from slurm_hooks.model import Curve, Detail, Learned, Reason, Why
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.quotas import Quota
from slurm_hooks.planning.situation import Situation

PATIENCE_S = 300.0
"""A job that has told nothing for so long does not wait on its least any longer: starting, and
compiling its model, may take minutes."""


@dataclass(frozen=True)
class Weighing:
    """On which curve a job is weighed; one that `begins` asks for no more than its least."""

    curve: Curve
    begins: bool


def weighings(
    ground: Ground,
    situations: Sequence[Situation],
    nodes: int,
    units: Sequence[int],
    quotas: Iterable[Quota] = (),
) -> tuple[Weighing, ...]:
    """Of each job, in their order; all of them share `nodes`, of which one of what each job counts
    is so many `units`, and those of a quota no more than that.

    No job waits on its least unless they want more than there is: else there is nothing to choose
    between them.
    """
    sized = list(zip(situations, units))
    wishes = [min(max(s.reachable * each, 1), nodes) for s, each in sized]
    least = [min(s.least * each, wish) for (s, each), wish in zip(sized, wishes)]
    crowded: set[int] = set()
    for quota in quotas:
        mine = [at for at, s in enumerate(situations) if s.job.job_id in quota.jobs]
        if sum(wishes[at] for at in mine) > quota.most:
            of_mine = [wishes[at] for at in mine], quota.most, [least[at] for at in mine]
            for at, share in zip(mine, equal_shares(*of_mine)):
                wishes[at] = min(wishes[at], share)
            crowded.update(mine if len(mine) > 1 else ())
    shares = equal_shares(wishes, nodes, least)
    is_scarce = sum(wishes) > nodes
    return tuple(
        Weighing(
            _curve(ground, s, share // each), (is_scarce or at in crowded) and _begins(ground, s)
        )
        for at, ((s, each), share) in enumerate(zip(sized, shares))
    )


def _curve(ground: Ground, situation: Situation, share: int) -> Curve:
    job, request = situation.job, situation.job.request
    if not job.way.works_as_one:
        return pool_curve(share, situation.most, request.unit)
    if job.job_id in ground.seen.curves:
        return ground.seen.curves[job.job_id]
    learned = ground.seen.learned.get(job.job_id, Learned())
    least = max(share, situation.least)
    return learned.curve or equal_share(least, request.max_nodes, request.unit)


def _begins(ground: Ground, situation: Situation) -> bool:
    """True of a new job until it has told a rate, be it its least that it waits for. Without that
    rate every curve fails, since all speed-ups count against it."""
    job, least = situation.job, situation.least
    learned = _learned(ground, situation)
    if learned is None or learned.sizes_seen or learned.is_shared:
        return False
    if not situation.size <= least < situation.most:
        return False
    whole = job.since(least)
    return whole is None or (ground.now - whole).total_seconds() <= PATIENCE_S


def _learned(ground: Ground, situation: Situation) -> Optional[Learned]:
    """What is known of a job that tells rates, be it nothing yet; None if that has no use."""
    job = situation.job
    is_known = job.job_id in ground.seen.curves
    may = job.tells_rates and not is_known and not situation.is_apart
    return ground.seen.learned.get(job.job_id) if may else None


def reason_of(nodes: int) -> Reason:
    """Why a job that begins has its least."""
    return Reason(Why.PROBED, Detail(nodes_planned=nodes))
