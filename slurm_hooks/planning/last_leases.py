"""Finished jobs whose present leases are the last: somebody needs the nodes on which their scripts
still do something."""

from __future__ import annotations

import math
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
    if survey.mandate.waits:
        return frozenset()
    late = {s.job.job_id: s for s in situations if waits_too_long(survey.ground, s)}
    usable: Counter[int] = Counter()
    for name in eligibility.in_service if late else ():
        usable.update({j: eligibility.size(name, j) for j in eligibility.jobs(name) if j in late})
    ceiling = math.inf if survey.mandate.ceiling is None else survey.mandate.ceiling
    most = ceiling * eligibility.per_node
    fit = ((j, s) for j, s in late.items() if s.least * eligibility.units(s.job) <= most)
    return frozenset(j for j, situation in fit if situation.least <= usable[j])
