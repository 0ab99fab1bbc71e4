"""The last word on parts of nodes: none is taken where that would delay others.

Filling a part of a node makes Slurm put the next small job elsewhere. On an idle node it would then
stand where a job of whole nodes could have been: that waits for an hour instead of half a second
(seen on 22.05, 24.11 and 26.05). So does a node of which ours have only a part, since the fullest
node comes first. There ours take all memory, and others' jobs start as if the node were full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurm_hooks.model import Detail, FragmentId, Intent, Plan, Reason, Resources, Verb, Why
from slurm_hooks.planning.dropping import Fault, without
from slurm_hooks.planning.places import Places


def polite(plan: Plan, places: Places) -> Plan:
    """The plan without parts of nodes that others use while a node stays idle that they could use
    instead, and with all memory of nodes that ours alone have. A gang that would then start with
    less than its minimum does not start, and the idle nodes that it was to have count as well."""
    grows = [i for i in plan.actions if i.verb is Verb.GROW]
    if not any(i.mark is not None and i.mark.slots for i in grows):
        return plan
    faults: dict[FragmentId, Fault] = {}
    while found := _found([i for i in grows if i.fragment not in faults], places):
        faults.update(found)
        faults.update(_below_minimum(without(plan, faults), grows, faults))
    return _closed(without(plan, faults), places)


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


def _closed(plan: Plan, places: Places) -> Plan:
    """The plan in which no job of others fits beside ours on a node that they do not use: the last
    fragment that starts there has the memory that would be left."""
    parts = [i for i in plan.actions if i.verb is Verb.GROW and i.mark is not None and i.mark.slots]
    left: dict[str, Resources] = {}
    for grow in parts:
        for name in grow.nodes:
            left[name] = left.get(name, places.left(name)) - grow.asks
    last = {name: grow.fragment for grow in parts for name in grow.nodes}
    rest = {
        last[name]: Resources(memory_mib=more.memory_mib)
        for name, more in left.items()
        if more.cpus and more.memory_mib and not places.is_shared(name)
    }
    larger = (
        replace(i, asks=i.asks + rest[i.fragment], is_resized=True) if i.fragment in rest else i
        for i in plan.actions
    )
    return replace(plan, actions=tuple(larger)) if rest else plan
