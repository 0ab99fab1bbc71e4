"""Caps each job by what the QOS of its lane lets its user, its account or all jobs have.

Slurm enforces these limits, and a fragment that is released above one stays pending. So the jobs
under a limit share it before the allocator is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from slurm_hooks.allocation.curves import equal_shares
from slurm_hooks.model import LIVE_STATES, Detail, Limit, MalleableJob, Reason, Why
from slurm_hooks.model.resources import GPU
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.situation import Cap, Situation


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

    Running jobs have their minimum first, even above the limit, as Slurm ends none of them. Then
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
