"""Chooses the curve by which each job is weighed: given, learned, or an equal share.

It also names the jobs that begin at their least size, so that their rate there becomes known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.allocation.curves import equal_share, equal_shares, pool_curve
from slurm_hooks.model import Curve, Detail, Learned, Reason, Why
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.situation import Situation

PATIENCE_S = 300.0
"""A job without a reported rate waits at its least no longer than this. Its start, and compiling
its model, may take minutes."""


@dataclass(frozen=True)
class Weighing:
    """The curve by which a job is weighed. A job that `begins` asks only for its least."""

    curve: Curve
    begins: bool


def weighings(
    ground: Ground,
    situations: Sequence[Situation],
    nodes: int,
    units: Sequence[int],
) -> tuple[Weighing, ...]:
    """The weighings of the jobs, in their order.

    All jobs share `nodes`. A node or slot of each job is so many `units`. A job waits at its
    least only if the jobs want more than there is.
    Otherwise there is no choice to make between them.
    """
    sized = list(zip(situations, units))
    wishes = [min(max(s.reachable * each, 1), nodes) for s, each in sized]
    least = [min(s.least * each, wish) for (s, each), wish in zip(sized, wishes)]
    shares = equal_shares(wishes, nodes, least)
    is_scarce = sum(wishes) > nodes
    return tuple(
        Weighing(_curve(ground, s, share // each), is_scarce and _begins(ground, s))
        for (s, each), share in zip(sized, shares)
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
    """Tell whether a new job has reported no rate yet, even while it waits for its least.

    Without that rate every curve fails, since all speed-ups are relative to it.
    """
    job, least = situation.job, situation.least
    learned = _learned(ground, situation)
    if learned is None or learned.sizes_seen or learned.is_shared:
        return False
    if not situation.size <= least < situation.most:
        return False
    whole = job.since(least)
    return whole is None or (ground.now - whole).total_seconds() <= PATIENCE_S


def _learned(ground: Ground, situation: Situation) -> Optional[Learned]:
    """The knowledge about a job that reports rates, even if it is empty. None if it has no use."""
    job = situation.job
    is_known = job.job_id in ground.seen.curves
    may = job.tells_rates and not is_known and not situation.is_apart
    return ground.seen.learned.get(job.job_id) if may else None


def reason_of(nodes: int) -> Reason:
    """Say why a job that begins has its least."""
    return Reason(Why.PROBED, Detail(nodes_planned=nodes))
