"""The last word on parts of nodes: none is taken where that would delay others.

Filling a part of a node makes Slurm put the next small job elsewhere. On an idle node it would then
stand where a job of whole nodes could have been: that waits for an hour instead of half a second
(seen on 22.05, 24.11 and 26.05).
"""

from __future__ import annotations

from collections import defaultdict

from slurm_hooks.model import Detail, FragmentId, Intent, Plan, Reason, Verb, Why
from slurm_hooks.planning.dropping import Fault, without
from slurm_hooks.planning.places import Places


def polite(plan: Plan, places: Places) -> Plan:
    """The plan without parts of nodes that others use while a node stays idle that they could use
    instead. A gang that would then start with less than its minimum does not start."""
    grows = [i for i in plan.actions if i.verb is Verb.GROW]
    if not any(i.mark is not None and i.mark.slots for i in grows):
        return plan
    given = {name for grow in grows for name in grow.nodes}
    faults: dict[FragmentId, Fault] = {}
    of_jobs: defaultdict[int, list[Intent]] = defaultdict(list)
    for grow in grows:
        of_jobs[grow.fragment.job_id].append(grow)
        for name in grow.nodes:
            idle = places.idle_beside(name, given) if places.is_shared(name) else ""
            if idle:
                detail = Detail(nodes=(idle,))
                faults[grow.fragment] = Fault(Reason(Why.NODE_IDLE, detail), Why.NOT_GIVEN)
    for job in plan.jobs if faults else ():
        mine = of_jobs[job.job_id]
        left = job.nodes_planned - sum(i.size for i in mine if i.fragment in faults)
        if left < job.nodes_needed and any(i.fragment in faults for i in mine):
            why = next(faults[i.fragment] for i in mine if i.fragment in faults)
            faults.update(dict.fromkeys((i.fragment for i in mine), why))
    return without(plan, faults)
