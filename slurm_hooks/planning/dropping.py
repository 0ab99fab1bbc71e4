"""A plan without the actions that no longer hold, so that it tells what the tick will do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from slurm_hooks.model import (
    Detail,
    FragmentAction,
    Grow,
    IdleNodes,
    JobPlan,
    Level,
    Of,
    Plan,
    Reason,
    Why,
    verb_of,
)

_OF_THE_SIZE = (Why.MAXIMUM, Why.WISH, Why.LOOKED_AT)
"""Reasons that speak of the size that a job was to have."""


@dataclass(frozen=True)
class Fault:
    """That an action no longer holds, and why.

    Of the nodes that a job was to get, some are no longer free (`lost`); the others stay idle for
    the reason `idle`. A notice that is not given leaves the job `kept` nodes.
    """

    reason: Reason
    idle: Why = Why.NOT_GIVEN
    lost: frozenset[str] = frozenset()
    kept: int = 0


def handed_out(level: Level) -> Why:
    """What is said of a free node that a fragment is to start on."""
    return Why.OBSERVED if level is Level.OBSERVE else Why.STARTING


def without(plan: Plan, faults: Mapping[FragmentAction, Fault]) -> Plan:
    """The plan without these actions; each leaves a note with its fault.

    Sizes, reasons and idle nodes follow.
    """
    if not faults:
        return plan
    notes = (_not_done(action, fault) for action, fault in faults.items())
    return replace(
        plan,
        actions=tuple(a for a in plan.actions if a not in faults),
        jobs=tuple(_job_without(job, faults) for job in plan.jobs),
        notes=(*plan.notes, *notes),
        idle=_idle_without(plan, faults),
    )


def _not_done(action: FragmentAction, fault: Fault) -> Reason:
    named = (action.fragment,)
    detail = Detail(action=verb_of(action), fragments=named, because=fault.reason)
    return Reason(Why.NOT_DONE, detail)


def _job_without(job: JobPlan, faults: Mapping[FragmentAction, Fault]) -> JobPlan:
    mine = {a: why for a, why in faults.items() if a.fragment.job_id == job.job_id}
    grows = {a: why for a, why in mine.items() if isinstance(a, Grow)}
    kept = sum(why.kept for why in mine.values())
    job = replace(job, nodes_planned=job.nodes_planned + kept)
    if not grows:
        return job
    left = (reason for reason in job.reasons if reason.why not in _OF_THE_SIZE)
    found = (
        Reason(Why.OTHER_NODES, Detail(nodes=tuple(sorted(a.nodes)), because=why.reason))
        for a, why in grows.items()
    )
    return replace(
        job,
        nodes_planned=job.nodes_planned - sum(len(a.nodes) for a in grows),
        reasons=(*left, *found),
    )


def _idle_without(plan: Plan, faults: Mapping[FragmentAction, Fault]) -> tuple[IdleNodes, ...]:
    counts = Counter({each.reason: each.nodes for each in plan.idle})
    for action, why in faults.items():
        if isinstance(action, Grow):
            counts[handed_out(plan.level)] -= len(action.nodes)
            counts[why.idle] += len(action.nodes - why.lost)
    return tuple(IdleNodes(reason, counts[reason]) for reason in Of.IDLE.whys if counts[reason] > 0)
