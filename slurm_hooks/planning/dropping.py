"""Drops from a plan the intents that no longer hold, so that it shows how the tick will act."""

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
"""Reasons about the size that a job was to have."""


@dataclass(frozen=True)
class Fault:
    """The reason why an intent no longer holds, and the part of it that is `left`.

    Some of the nodes that a job was to get may have been `lost`. The others stay idle for the
    reason `idle`. If a notice is dropped, the job keeps `kept` nodes.
    """

    reason: Reason
    idle: Why = Why.NOT_GIVEN
    lost: frozenset[str] = frozenset()
    kept: int = 0
    left: Optional[Intent] = None


_Faulty = Sequence[tuple[Intent, Fault]]


def handed_out(level: Level) -> Why:
    """The reason shown for a free node on which a fragment is to start."""
    return Why.OBSERVED if level is Level.OBSERVE else Why.STARTING


def stayed(intent: Intent) -> Intent:
    """The part of an intent that does not touch the run: lease, hold, and a mark of other things.

    A cancel stays a cancel, but the fragment is not put back before.
    """
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
    """Drop the intents that have a fault, and leave a note for each.

    Sizes, reasons and idle nodes follow.
    """
    if not faults:
        return plan
    faulty = [(i, faults[i.fragment]) for i in plan.actions if i.fragment in faults]
    of_job: dict[int, list[tuple[Intent, Fault]]] = {}
    for intent, why in faulty:
        of_job.setdefault(intent.fragment.job_id, []).append((intent, why))
    idle, starting = _idle_without(plan, faulty)
    left = (faults[i.fragment].left if i.fragment in faults else i for i in plan.actions)
    return replace(
        plan,
        actions=tuple(i for i in left if i is not None and i.parts),
        jobs=tuple(_job_without(job, of_job.get(job.job_id, [])) for job in plan.jobs),
        notes=(*plan.notes, *(_not_done(i, why) for i, why in faulty)),
        idle=idle,
        starting=starting,
    )


def _not_done(intent: Intent, fault: Fault) -> Reason:
    """Name the weightiest part that is dropped."""
    left = fault.left.parts if fault.left is not None else ()
    dropped = next(part for part in intent.parts if part not in left)
    detail = Detail(action=dropped, fragments=(intent.fragment,), because=fault.reason)
    return Reason(Why.NOT_DONE, detail)


def _job_without(job: JobPlan, mine: _Faulty) -> JobPlan:
    """Return the plan of a job without its faulty intents."""
    grows = [(i, why) for i, why in mine if i.verb is Verb.GROW]
    job = replace(job, nodes_planned=job.nodes_planned + sum(why.kept for _, why in mine))
    if not grows:
        return job
    left = (reason for reason in job.reasons if reason.why not in _OF_THE_SIZE)
    others = (
        Reason(Why.OTHER_NODES, Detail(nodes=tuple(sorted(i.nodes)), because=why.reason))
        for i, why in grows
    )
    return replace(
        job,
        nodes_planned=job.nodes_planned - sum(i.size for i, _ in grows),
        reasons=(*left, *others),
    )


def _idle_without(plan: Plan, faulty: _Faulty) -> tuple[tuple[IdleNodes, ...], frozenset[str]]:
    """Return the idle nodes by reason, and the nodes on which fragments still start.

    A node with several parts is idle once the last of them is dropped.
    """
    counts = Counter({each.reason: each.nodes for each in plan.idle})
    dropped = {intent.fragment for intent, _ in faulty}
    still = {name for i in plan.actions if i.fragment not in dropped for name in i.nodes}
    starting = set(plan.starting)
    for intent, why in faulty:
        gone = {name for name in intent.nodes if name in starting and name not in still}
        starting -= gone
        counts[handed_out(plan.level)] -= len(gone)
        counts[why.idle] += len(gone - why.lost)
    rows = (IdleNodes(reason, counts[reason]) for reason in Of.IDLE.whys if counts[reason] > 0)
    return tuple(rows), frozenset(starting)
