"""The last word on parts of nodes: none is taken where that would delay others.

Filling a part of a node makes Slurm put the next small job elsewhere. On an idle node it would then
stand where a job of whole nodes could have been: that waits for an hour instead of half a second
(seen on 22.05, 24.11 and 26.05).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm_hooks.model import Detail, FragmentId, Intent, Plan, Reason, Verb, Why
from slurm_hooks.planning.dropping import Fault, without
from slurm_hooks.planning.places import Places


def polite(plan: Plan, places: Places) -> Plan:
    """The plan without parts of nodes that others use while a node stays idle that they could use
    instead. A gang that would then start with less than its minimum does not start, and the idle
    nodes that it was to have count as well."""
    grows = [i for i in plan.actions if i.verb is Verb.GROW]
    if not any(i.mark is not None and i.mark.slots for i in grows):
        return plan
    faults: dict[FragmentId, Fault] = {}
    while found := _found([i for i in grows if i.fragment not in faults], places):
        faults.update(found)
        faults.update(_below_minimum(without(plan, faults), grows, faults))
    return without(plan, faults)


def _found(grows: Sequence[Intent], places: Places) -> dict[FragmentId, Fault]:
    """The parts beside others that an idle node forbids, if these grow."""
    given = {name for grow in grows for name in grow.nodes}
    found: dict[FragmentId, Fault] = {}
    for grow in grows:
        for name in grow.nodes:
            idle = places.idle_beside(name, given) if places.is_shared(name) else ""
            if idle:
                reason = Reason(Why.NODE_IDLE, Detail(nodes=(idle,)))
                found[grow.fragment] = Fault(reason, Why.NOT_GIVEN)
    return found


def _below_minimum(
    left: Plan, grows: Sequence[Intent], faults: Mapping[FragmentId, Fault]
) -> dict[FragmentId, Fault]:
    """The other fragments of gangs of which too little is left."""
    short = {job.job_id for job in left.jobs if job.nodes_planned < job.nodes_needed}
    whys = {fragment.job_id: fault for fragment, fault in faults.items()}
    return {
        grow.fragment: whys[grow.fragment.job_id]
        for grow in grows
        if grow.fragment.job_id in short & whys.keys() and grow.fragment not in faults
    }
