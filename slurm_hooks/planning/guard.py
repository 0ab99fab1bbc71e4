"""Checks right before a tick writes that its plan still fits the cluster.

Intents that do not fit are dropped, each with its reason. The next tick plans again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import Optional

from slurm_hooks.model import (
    Detail,
    Fragment,
    FragmentId,
    Intent,
    MalleableJob,
    NodeState,
    Plan,
    Reason,
    Resources,
    Snapshot,
    Verb,
    Why,
)
from slurm_hooks.model.resources import NO_RESOURCES
from slurm_hooks.planning.dropping import Fault, with_minimums, without
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.holes import Hole, Holes
from slurm_hooks.planning.interruptions import Interruptions, interruptions_of
from slurm_hooks.planning.manners import polite
from slurm_hooks.planning.modes import mandate_of
from slurm_hooks.planning.slots import no_parts
from slurm_hooks.settings.values import Settings


def needs_guard(plan: Plan) -> bool:
    """Tell whether the plan gives a node for longer. Leaving is always safe."""
    return any(i.verb is Verb.GROW or i.end is not None for i in plan.actions)


def guard(plan: Plan, seen: Snapshot, fresh: Snapshot, settings: Settings) -> Plan:
    """Drop from the plan each intent that would now break a promise.

    Slurm checks the start of a fragment against reservations, but not a renewal. So the guard
    checks renewals. A job that would start below its minimum does not start at all. A job whose
    growth would end at a forbidden size does not grow.
    """
    return _guarded(plan, seen, fresh, settings, plan.actions)


def guard_starts(plan: Plan, seen: Snapshot, fresh: Snapshot, settings: Settings) -> Plan:
    """Drop the starts that planned starts forbid which Slurm has published since `seen`."""
    if fresh.planned == seen.planned:
        return plan
    return _guarded(plan, seen, fresh, settings, [i for i in plan.actions if i.verb is Verb.GROW])


def _guarded(
    plan: Plan, seen: Snapshot, fresh: Snapshot, settings: Settings, checked: Iterable[Intent]
) -> Plan:
    facts = _facts(Ground(fresh, settings), seen, plan)
    faults = {i.fragment: why for i in checked if (why := _fault(i, facts))}
    faults = with_minimums(facts.jobs, plan.actions, faults)
    return polite(without(plan, faults), facts.holes)


@dataclass(frozen=True)
class _Facts:
    """The cluster as it was just read, ready for checks of single actions.

    A `short` node no longer has room for all the parts that are to start there.
    """

    now: datetime
    holes: Holes
    short: frozenset[str]
    waits: tuple[Reason, ...]
    no_parts: tuple[str, ...]
    interruptions: Interruptions
    jobs: Mapping[int, MalleableJob]
    fragments: Mapping[FragmentId, Fragment]
    stay: dict[int, frozenset[FragmentId]] = field(default_factory=dict)

    def staying(self, job: MalleableJob) -> frozenset[FragmentId]:
        """The fragments of a job that stay past planned starts, computed once."""
        if job.job_id not in self.stay:
            self.stay[job.job_id] = self.interruptions.staying(job, self.holes)
        return self.stay[job.job_id]


def _facts(ground: Ground, seen: Snapshot, plan: Plan) -> _Facts:
    holes = Holes(Ground(replace(ground.seen, jobs=seen.jobs), ground.settings))
    return _Facts(
        now=ground.now,
        holes=holes,
        short=frozenset(_short(holes, plan)),
        waits=mandate_of(ground).waits,
        no_parts=ground.seen.no_parts,
        interruptions=interruptions_of(ground),
        jobs={job.job_id: job for job in seen.jobs},
        fragments={f.id: f for job in seen.jobs for f in job.fragments},
    )


def _short(holes: Holes, plan: Plan) -> Iterator[str]:
    asked: dict[str, Resources] = {}
    for intent in plan.actions:
        for name in intent.nodes if intent.asks != NO_RESOURCES else ():
            asked[name] = asked.get(name, NO_RESOURCES) + intent.asks
    for name, asks in asked.items():
        if name not in holes or not asks.fits(holes[name].left):
            yield name


def _fault(intent: Intent, facts: _Facts) -> Optional[Fault]:
    if intent.verb is Verb.GROW:
        return _growth_fault(intent, facts)
    fault = _renewal_fault(intent.fragment, intent.end, facts) if intent.end is not None else None
    return replace(fault, left=replace(intent, end=None)) if fault else None


def _growth_fault(grow: Intent, facts: _Facts) -> Optional[Fault]:
    if facts.waits:
        return Fault(facts.waits[0], facts.waits[0].why)
    if facts.no_parts and grow.asks != NO_RESOURCES:
        return Fault(no_parts(facts.no_parts[0]))
    lost = [n for n in sorted(grow.nodes) if not _has_room(grow, n, facts)]
    if lost:
        return Fault(Reason(Why.TAKEN, Detail(nodes=tuple(lost))), lost=frozenset(lost))
    job = facts.jobs.get(grow.fragment.job_id)
    may_gain = job is not None and facts.interruptions.may_gain(job)
    last = attrgetter("until" if may_gain else "latest")
    return _overrun(grow.nodes, facts.now + grow.limit, last, facts)


def _has_room(grow: Intent, name: str, facts: _Facts) -> bool:
    if grow.asks != NO_RESOURCES:
        return name not in facts.short
    hole = facts.holes.get(name)
    return hole is not None and hole.node.state is NodeState.FREE


def _renewal_fault(name: FragmentId, end: datetime, facts: _Facts) -> Optional[Fault]:
    fragment = facts.fragments.get(name)
    if fragment is None or fragment.start is None:
        return Fault(Reason(Why.GONE, Detail(fragments=(name,))))
    if fragment.end is None or end <= fragment.end:
        return None  # a shorter lease is always safe
    job = facts.jobs[name.job_id]
    is_past = name in facts.staying(job)
    last = attrgetter("wall" if is_past else "latest")
    return _overrun(fragment.nodes, end, last, facts)


def _overrun(
    nodes: frozenset[str],
    end: datetime,
    last: Callable[[Hole], Optional[datetime]],
    facts: _Facts,
) -> Optional[Fault]:
    for name in sorted(nodes):
        if name not in facts.holes:
            return Fault(Reason(Why.GONE, Detail(nodes=(name,))), lost=frozenset({name}))
        latest = last(facts.holes[name])
        if latest is not None and end > latest:
            detail = Detail(nodes=(name,), by=facts.holes[name].claim.by)
            return Fault(Reason(Why.HOLE_SHORT, detail), Why.HOLE_SHORT)
    return None
