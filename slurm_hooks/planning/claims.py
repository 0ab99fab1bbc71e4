"""Says what each job may ask of the allocator: its cap, its claim to its minimum, and its curve.

Slurm enforces the limits of a QOS, and a fragment that is released above one stays pending. So the
jobs under a limit share it before the allocator is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from slurm_hooks.allocation import minimums
from slurm_hooks.allocation.curves import equal_share, equal_shares, pool_curve
from slurm_hooks.allocation.minimums import Standing, turn_at, turns_of
from slurm_hooks.allocation.problem import JobAsk
from slurm_hooks.model import (
    LIVE_STATES,
    Curve,
    Detail,
    Learned,
    Limit,
    MalleableJob,
    Reason,
    Why,
)
from slurm_hooks.model.ends import requeue_of
from slurm_hooks.model.resources import GPU
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.situation import Cap, Situation


def with_claims(
    ground: Ground, situations: Sequence[Situation], asks: Sequence[JobAsk]
) -> tuple[JobAsk, ...]:
    """Return the asks, each with its claim to the job's minimum."""
    standings = [_standing(ground, situation) for situation in situations]
    turn = turn_at(ground.now.timestamp(), ground.settings.plan.patience_s)
    return minimums.with_claims(asks, standings, turn)


def _standing(ground: Ground, situation: Situation) -> Standing:
    job, patience_s = situation.job, ground.settings.plan.patience_s
    is_short = situation.size < situation.least
    waited_s = waited(ground, situation.marked).total_seconds() if is_short else 0.0
    since = job.oldest_start
    ran_s = 0.0 if since is None else (ground.now - since).total_seconds()
    return Standing(
        number=job.job_id,
        is_short=is_short,
        turns=turns_of(waited_s, patience_s),
        has_begun=since is None or ran_s < patience_s,
        has_minimum=job.request.min_nodes > 0 and situation.core < situation.least,
    )


def waits_too_long(ground: Ground, situation: Situation) -> bool:
    """Tell whether a job that could start has been below its minimum for `patience_s`."""
    patience_s = ground.settings.plan.patience_s
    if not patience_s or not situation.is_placed or situation.size >= situation.least:
        return False
    return waited(ground, situation.marked).total_seconds() >= patience_s


def waited(ground: Ground, job: MalleableJob) -> timedelta:
    """The time that a job without fragments has waited.

    It counts from its submission, from the last time when a fragment was put back or preempted, or
    from its last wait for other jobs.
    """
    fragments, slurm = job.fragments, ground.slurm
    moments = ((f.mark.noticed, f.mark.depended, requeue_of(f, slurm)) for f in fragments)
    known = (when for row in ((job.submitted,), *moments) for when in row)
    return ground.now - max((w for w in known if w and w <= ground.now), default=ground.now)


def with_caps(ground: Ground, situations: Sequence[Situation]) -> list[Situation]:
    """Return the situations, each with the lowest of its caps."""
    limits = {terms.partition: terms.limits for terms in ground.seen.terms}
    groups: dict[tuple[Limit, str], list[Situation]] = {}
    for situation in situations:
        for limit in limits.get(situation.job.partition, ()):
            if _each(situation.job, limit):
                groups.setdefault((limit, _owner(situation.job, limit)), []).append(situation)
    caps: dict[int, Cap] = {}
    for (limit, owner), group in groups.items():
        for situation, lent in _shared(limit, group):
            job_id, size = situation.job.job_id, situation.core + lent
            if size < (caps[job_id].size if job_id in caps else situation.most):
                caps[job_id] = Cap(size, _reason(limit, owner, situation))
    return [replace(s, cap=caps.get(s.job.job_id)) for s in situations] if caps else [*situations]


def _owner(job: MalleableJob, limit: Limit) -> str:
    """The user or account of the job. All jobs without an account count as a single account."""
    return {"user": job.user, "account": job.account.lower() or "(none)"}.get(limit.of, "")


def _each(job: MalleableJob, limit: Limit) -> int:
    """The amount of the resource in a node or slot of the job. A slot counts as no node."""
    slot = job.request.slot
    if limit.tres == "node":
        return int(slot is None)
    if slot is not None:
        return int(bool(slot.gres))
    return max((count for name, count in job.needs.gres if name.startswith(GPU)), default=0)


def _shared(limit: Limit, group: Sequence[Situation]) -> Iterator[tuple[Situation, int]]:
    """The size in holes that each job of a group may have now.

    Running jobs have their minimum first, even above the limit, as Slurm does not end them. Then
    waiting jobs get theirs, and the rest is shared equally. A job grows only by what no fragment
    takes, not even on its way out.
    """
    room = left = limit.most
    served: list[tuple[Situation, int]] = []
    for situation in sorted(group, key=lambda s: (not s.lent, s.job.job_id)):
        each, job = _each(situation.job, limit), situation.job
        room -= each * sum(f.size for f in job.stirring if f.state in LIVE_STATES and not f.is_core)
        needed = each * situation.fewest
        if situation.upkeep.has_ended:
            left -= each * (situation.size - situation.core)
        elif situation.lent or needed <= left:
            served.append((situation, each))
            left -= needed
        else:
            yield situation, 0
    least = [each * s.fewest for s, each in served]
    wishes = [max(low, each * (s.most - s.core)) for (s, each), low in zip(served, least)]
    shares = equal_shares(wishes, left + sum(least), least)
    for (situation, each), share in zip(served, shares):
        size = situation.size - situation.core
        grown = max(0, min(share // each - size, room // each))
        if size + grown < situation.fewest:
            grown = 0
        room -= each * grown
        yield situation, min(size + grown, share // each)


def _reason(limit: Limit, owner: str, situation: Situation) -> Reason:
    detail = Detail(said=f"{limit.name}={limit.tres}={limit.most} of QOS {limit.qos}")
    if limit.of == "user":
        detail["user"] = owner
    if limit.of == "account":
        detail["account"] = owner
    if situation.fewest * _each(situation.job, limit) > limit.most:
        detail["nodes_needed"] = situation.fewest
    return Reason(Why.CEILING, detail)


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

    All jobs share `nodes`. A node or slot of each job is so many `units`. A job waits at its least
    only if the jobs want more than there is. Otherwise there is no choice to make.
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
    learned = ground.seen.learned.get(job.job_id)
    has_use = job.tells_rates and not situation.is_apart and job.job_id not in ground.seen.curves
    if not has_use or learned is None or learned.sizes_seen or learned.is_shared:
        return False
    if not situation.size <= least < situation.most:
        return False
    whole = job.since(least)
    return whole is None or (ground.now - whole).total_seconds() <= PATIENCE_S
