"""Finished jobs whose present leases are the last: somebody needs the nodes on which their scripts
still do something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from slurm_hooks.model import Detail, Reason, Why
from slurm_hooks.planning.claims import waits_too_long
from slurm_hooks.planning.eligibility import Eligibility
from slurm_hooks.planning.node_classes import kept_by
from slurm_hooks.planning.situation import Situation
from slurm_hooks.planning.survey import Survey


def last_leases(
    survey: Survey, eligibility: Eligibility, situations: Sequence[Situation]
) -> dict[int, Reason]:
    """Why, by job id. The allocator has no say in finished jobs; all malleable jobs may have more
    than the site allows now, or a job has waited for `patience_s` and could use a node of theirs.
    """
    finished = [s for s in situations if s.job.active and _is_finished(s)]
    most = survey.mandate.most_kept
    if not finished:
        return {}
    kept = sum(kept_by(s) * eligibility.units(s.job) for s in situations)
    if most is not None and kept > most * eligibility.per_node:
        return {s.job.job_id: Reason(Why.CEILING, Detail(ceiling=most)) for s in finished}
    waiting = _waiting(survey, eligibility, situations)
    found, patience_s = {}, survey.ground.settings.plan.patience_s
    for situation in finished:
        known = situation.job.nodes & survey.nodes.keys()  # one may have left slurm.conf
        first = min((j for n in known for j in eligibility.jobs(n) if j in waiting), default=None)
        if first is not None:
            detail = Detail(job=first, seconds=patience_s)
            found[situation.job.job_id] = Reason(Why.BETTER_USE, detail)
    return found


def _is_finished(situation: Situation) -> bool:
    return any(reason.why is Why.FINISHED for reason in situation.upkeep.reasons)


def _waiting(
    survey: Survey, eligibility: Eligibility, situations: Sequence[Situation]
) -> frozenset[int]:
    """The jobs that have lost patience, and for which there are nodes enough, whoever has them."""
    if survey.mandate.registering:
        return frozenset()
    late = {s.job.job_id: s.least for s in situations if waits_too_long(survey.ground, s)}
    if not late:
        return frozenset()
    found = (j for name in eligibility.in_service for j in eligibility.jobs(name))
    usable = Counter(job_id for job_id in found if job_id in late)
    ceiling = survey.mandate.ceiling
    most = sum(usable.values()) if ceiling is None else ceiling
    return frozenset(j for j, least in late.items() if least <= min(usable[j], most))
