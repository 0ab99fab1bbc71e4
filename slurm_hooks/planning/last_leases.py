"""Finds finished jobs whose scripts run on needed nodes. Their present leases are the last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from slurm_hooks.model import Detail, Reason, Why
from slurm_hooks.planning.claims import waits_too_long
from slurm_hooks.planning.eligibility import Eligibility
from slurm_hooks.planning.node_classes import kept_size
from slurm_hooks.planning.situation import Situation
from slurm_hooks.planning.survey import Survey


def last_leases(
    survey: Survey, eligibility: Eligibility, situations: Sequence[Situation]
) -> dict[int, Reason]:
    """The reasons for last leases, by job id. The allocator has no say in finished jobs.

    Either malleable jobs have more than the site allows now. Or a job has waited for `patience_s`
    and could use a node of theirs.
    """
    finished = [s for s in situations if s.job.active and _is_finished(s)]
    most = survey.mandate.most_kept
    if not finished:
        return {}
    kept = {s.job.job_id: kept_size(s) * eligibility.units(s.job) for s in situations}
    if most is not None and sum(kept.values()) > most * eligibility.per_node:
        return {s.job.job_id: Reason(Why.CEILING, Detail(ceiling=most)) for s in finished}
    waiting = _waiting(survey, eligibility, situations)
    reasons, patience_s = {}, survey.ground.settings.plan.patience_s
    for situation in finished:
        known = situation.job.nodes & survey.holes.keys()  # a node may have left slurm.conf
        first = min((j for n in known for j in eligibility.jobs(n) if j in waiting), default=None)
        if first is not None:
            detail = Detail(job=first, seconds=patience_s)
            reasons[situation.job.job_id] = Reason(Why.BETTER_USE, detail)
    return reasons


def _is_finished(situation: Situation) -> bool:
    return any(reason.why is Why.FINISHED for reason in situation.upkeep.reasons)


def _waiting(
    survey: Survey, eligibility: Eligibility, situations: Sequence[Situation]
) -> frozenset[int]:
    """The jobs that have lost patience, and for which there are enough nodes, free or used."""
    if survey.mandate.waits:
        return frozenset()
    late = {s.job.job_id: s for s in situations if waits_too_long(survey.ground, s)}
    usable: Counter[int] = Counter()
    for name in eligibility.in_service if late else ():
        usable.update({j: eligibility.size(name, j) for j in eligibility.jobs(name) if j in late})
    fit = (j for j, s in late.items() if _is_within(survey, eligibility, s))
    return frozenset(j for j in fit if late[j].fewest <= usable[j])


def _is_within(survey: Survey, eligibility: Eligibility, situation: Situation) -> bool:
    """Tell whether the ceiling allows the fewest nodes that the job may have."""
    ceiling = survey.mandate.ceiling
    least = situation.fewest * eligibility.units(situation.job)
    return ceiling is None or least <= ceiling * eligibility.per_node
