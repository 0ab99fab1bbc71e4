"""Drops parts of nodes from a plan where taking them would delay others.

When a part of a node is taken, Slurm puts the next small job elsewhere, perhaps on an idle node. A
job of whole nodes that could have started there then waits for an hour instead of half a second
(seen on 22.05, 24.11 and 26.05). A node of which we have only a part is harmful too, since Slurm
fills the fullest node first. There we take all memory, so Slurm treats the node as full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurm_hooks.model import Detail, FragmentId, Intent, Plan, Reason, Resources, Verb, Why
from slurm_hooks.planning.dropping import Fault, without
from slurm_hooks.planning.holes import Holes


def polite(plan: Plan, holes: Holes) -> Plan:
    """Drop parts of shared nodes while a node stays idle that the others could have instead.

    On nodes that only malleable jobs use, they take all memory. A gang that would then start below
    its minimum does not start, and the idle nodes meant for it count as well.
    """
    grows = [i for i in plan.actions if i.verb is Verb.GROW]
    if not any(i.mark is not None and i.mark.slots for i in grows):
        return plan
    faults: dict[FragmentId, Fault] = {}
    while blocked := _blocked([i for i in grows if i.fragment not in faults], holes):
        faults.update(blocked)
        faults.update(_below_minimum(without(plan, faults), grows, faults))
    return _closed(without(plan, faults), holes)


def _blocked(grows: Sequence[Intent], holes: Holes) -> dict[FragmentId, Fault]:
    """The parts of shared nodes that an idle node forbids, if these fragments grow."""
    given = {name for grow in grows for name in grow.nodes}
    blocked: dict[FragmentId, Fault] = {}
    for grow in grows:
        for name in grow.nodes:
            idle = holes.idle_beside(holes[name], given) if holes[name].is_shared else ""
            if idle:
                reason = Reason(Why.NODE_IDLE, Detail(nodes=(idle,)))
                blocked[grow.fragment] = Fault(reason, Why.NOT_GIVEN)
    return blocked


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


def _closed(plan: Plan, holes: Holes) -> Plan:
    """Return the plan in which no job of others fits on a node that only we use.

    The last fragment that starts on the node also takes the memory that would be left.
    """
    parts = [i for i in plan.actions if i.verb is Verb.GROW and i.mark is not None and i.mark.slots]
    left: dict[str, Resources] = {}
    for grow in parts:
        for name in grow.nodes:
            left[name] = left.get(name, holes[name].left) - grow.asks
    last = {name: grow.fragment for grow in parts for name in grow.nodes}
    rest = {
        last[name]: Resources(memory_mib=more.memory_mib)
        for name, more in left.items()
        if more.cpus and more.memory_mib and not holes[name].is_shared
    }
    larger = (
        replace(i, asks=i.asks + rest[i.fragment], is_resized=True) if i.fragment in rest else i
        for i in plan.actions
    )
    return replace(plan, actions=tuple(larger)) if rest else plan
