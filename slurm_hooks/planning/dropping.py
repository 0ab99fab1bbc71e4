"""A plan without what no longer holds, so that it tells what the tick will do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Optional

from slurm_hooks.model import (
    Detail,
    FragmentId,
    IdleNodes,
    Intent,
    JobPlan,
    Level,
    Of,
    Plan,
    Reason,
    Verb,
    Why,
)

_OF_THE_SIZE = (Why.MAXIMUM, Why.WISH, Why.PROBED)
"""Reasons that speak of the size that a job was to have."""


@dataclass(frozen=True)
class Fault:
    """That an intent no longer holds, why, and what is `left` of it.

    Of the nodes that a job was to get, some are no longer free (`lost`); the others stay idle for
    the reason `idle`. A notice that is not given leaves the job `kept` nodes.
    """

    reason: Reason
    idle: Why = Why.NOT_GIVEN
    lost: frozenset[str] = frozenset()
    kept: int = 0
    left: Optional[Intent] = None


_Faulty = Sequence[tuple[Intent, Fault]]


def handed_out(level: Level) -> Why:
    """What is said of a free node that a fragment is to start on."""
    return Why.OBSERVED if level is Level.OBSERVE else Why.STARTING


def stayed(intent: Intent) -> Intent:
    """What is left of an intent if nothing happens to the run: its lease, its hold and a mark that
    does not speak of the run. What is cancelled still is, but it is not put back before."""
    is_cancel = intent.verb is Verb.CANCEL
    is_of_run = intent.has_late_mark or intent.verb is Verb.NOTICE
    return replace(
        intent,
        verb=Verb.CANCEL if is_cancel else Verb.STAY,
        mark=None if is_of_run else intent.mark,
        is_held=intent.is_held and not intent.is_ended,
        nodes=frozenset(),
        limit=timedelta(0),
        is_ended=False,
        lane="",
    )


def without(plan: Plan, faults: Mapping[FragmentId, Fault]) -> Plan:
    """The plan without what has a fault; each leaves a note.

    Sizes, reasons and idle nodes follow.
    """
    if not faults:
        return plan
    faulty = [(i, faults[i.fragment]) for i in plan.actions if i.fragment in faults]
    idle, starting = _idle_without(plan, faulty)
    left = (faults[i.fragment].left if i.fragment in faults else i for i in plan.actions)
    return replace(
        plan,
        actions=tuple(i for i in left if i is not None and i.parts),
        jobs=tuple(_job_without(job, faulty) for job in plan.jobs),
        notes=(*plan.notes, *(_not_done(i, why) for i, why in faulty)),
        idle=idle,
        starting=starting,
    )


def _not_done(intent: Intent, fault: Fault) -> Reason:
    """It names the weightiest part that is dropped."""
    left = fault.left.parts if fault.left is not None else ()
    dropped = next(part for part in intent.parts if part not in left)
    detail = Detail(action=dropped, fragments=(intent.fragment,), because=fault.reason)
    return Reason(Why.NOT_DONE, detail)


def _job_without(job: JobPlan, faulty: _Faulty) -> JobPlan:
    mine = [(i, why) for i, why in faulty if i.fragment.job_id == job.job_id]
    grows = [(i, why) for i, why in mine if i.verb is Verb.GROW]
    job = replace(job, nodes_planned=job.nodes_planned + sum(why.kept for _, why in mine))
    if not grows:
        return job
    left = (reason for reason in job.reasons if reason.why not in _OF_THE_SIZE)
    found = (
        Reason(Why.OTHER_NODES, Detail(nodes=tuple(sorted(i.nodes)), because=why.reason))
        for i, why in grows
    )
    return replace(
        job,
        nodes_planned=job.nodes_planned - sum(i.size for i, _ in grows),
        reasons=(*left, *found),
    )


def _idle_without(plan: Plan, faulty: _Faulty) -> tuple[tuple[IdleNodes, ...], frozenset[str]]:
    """Idle nodes by reason, and those on which something still starts. A node of several parts is
    idle once the last of them is dropped."""
    counts = Counter({each.reason: each.nodes for each in plan.idle})
    dropped = {intent.fragment for intent, _ in faulty}
    still = {name for i in plan.actions if i.fragment not in dropped for name in i.nodes}
    starting = plan.starting
    for intent, why in faulty:
        gone = intent.nodes & starting - still
        starting -= gone
        counts[handed_out(plan.level)] -= len(gone)
        counts[why.idle] += len(gone - why.lost)
    found = (IdleNodes(reason, counts[reason]) for reason in Of.IDLE.whys if counts[reason] > 0)
    return tuple(found), starting
