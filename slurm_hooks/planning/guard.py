"""The last check before anything is written: does the plan still fit a fresh look?

What does not is dropped, with its reason; the next tick plans again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Optional

from slurm_hooks.model import (
    Cancel,
    Detail,
    Fragment,
    FragmentAction,
    FragmentId,
    FragmentState,
    Grow,
    Hole,
    MalleableJob,
    NodeState,
    Notice,
    Plan,
    PutBack,
    Reason,
    Renew,
    Snapshot,
    Why,
)
from slurm_hooks.planning.dropping import Fault, without
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.hits import Hits, hits_of
from slurm_hooks.planning.holes import Ends, ends_of, holes_of
from slurm_hooks.planning.modes import mandate_of
from slurm_hooks.settings.values import Settings

_ON_THE_WAY = (FragmentState.RUNNING, FragmentState.PENDING)


def needs_guard(plan: Plan) -> bool:
    """True if the plan gives anybody a node for longer; leaving is always safe."""
    return any(isinstance(action, (Grow, Renew)) for action in plan.actions)


def guard(plan: Plan, seen: Snapshot, fresh: Snapshot, settings: Settings) -> Plan:
    """The plan without what would now break a promise.

    Slurm checks the start of a fragment against reservations, but not a renewal: this does. A job
    that would start with less than its minimum does not start at all.
    """
    facts = _facts(Ground(fresh, settings), seen)
    of_jobs: defaultdict[int, list[FragmentAction]] = defaultdict(list)
    for action in plan.actions:
        if not isinstance(action, Cancel):
            of_jobs[action.fragment.job_id].append(action)
    faults: dict[FragmentAction, Fault] = {}
    for job_id, actions in of_jobs.items():
        faults.update(_faults(facts.jobs.get(job_id), actions, facts))
    return without(plan, faults)


@dataclass(frozen=True)
class _Facts:
    """The fresh look, ready to be asked about single actions."""

    now: datetime
    states: Mapping[str, NodeState]
    holes: Mapping[str, Hole]
    ends: Ends
    registering: frozenset[str]
    hits: Hits
    jobs: Mapping[int, MalleableJob]
    fragments: Mapping[FragmentId, Fragment]
    stay: dict[int, frozenset[FragmentId]] = field(default_factory=dict)

    def staying(self, job: MalleableJob) -> frozenset[FragmentId]:
        """The fragments of a job that stay past planned starts, found once."""
        if job.job_id not in self.stay:
            self.stay[job.job_id] = self.hits.staying(job, self.holes)
        return self.stay[job.job_id]


def _facts(ground: Ground, seen: Snapshot) -> _Facts:
    holes = holes_of(ground.seen)
    return _Facts(
        now=ground.now,
        states={node.name: node.state for node in ground.seen.nodes},
        holes=holes,
        ends=ends_of(ground, holes),
        registering=mandate_of(ground).registering,
        hits=hits_of(ground),
        jobs={job.job_id: job for job in seen.jobs},
        fragments={f.id: f for job in seen.jobs for f in job.fragments},
    )


def _faults(
    job: Optional[MalleableJob], actions: list[FragmentAction], facts: _Facts
) -> dict[FragmentAction, Fault]:
    """What no longer fits of the actions on one job; all its growth if it would start too small."""
    faults = {action: why for action in actions if (why := _fault(action, facts))}
    grows = [action for action in actions if isinstance(action, Grow)]
    lost = sorted(name for action in grows if action in faults for name in action.nodes)
    if job is None or not lost:
        return faults
    going = {action.fragment for action in actions if isinstance(action, (Notice, PutBack))}
    here = (f for f in job.fragments if f.state in _ON_THE_WAY and not f.is_leaving)
    size = sum(len(f.nodes) for f in here if f.id not in going)
    size += sum(len(action.nodes) for action in grows if action not in faults)
    if not job.way.needs_min or size >= job.request.min_nodes:
        return faults
    why = Fault(Reason(Why.BELOW_MIN, Detail(nodes=tuple(lost))))
    return {**dict.fromkeys(grows, why), **faults}


def _fault(action: FragmentAction, facts: _Facts) -> Optional[Fault]:
    if isinstance(action, Grow):
        if facts.registering:
            return Fault(Reason(Why.REGISTERING), Why.REGISTERING)
        lost = [n for n in sorted(action.nodes) if facts.states.get(n) is not NodeState.FREE]
        if lost:
            return Fault(Reason(Why.TAKEN, Detail(nodes=tuple(lost))), lost=frozenset(lost))
        last = facts.ends.until if _gains_past(action, facts) else facts.ends.latest
        return _overrun(action.nodes, facts.now + action.limit, last, facts)
    if isinstance(action, Renew):
        return _renewal_fault(action, facts)
    return None


def _renewal_fault(action: Renew, facts: _Facts) -> Optional[Fault]:
    fragment = facts.fragments.get(action.fragment)
    if fragment is None or fragment.start is None:
        return Fault(Reason(Why.GONE, Detail(fragments=(action.fragment,))))
    if fragment.end is None or action.end <= fragment.end:
        return None  # a shorter lease is always safe
    job = facts.jobs[fragment.id.job_id]
    is_past = fragment.id in facts.staying(job)
    last = facts.ends.walls if is_past else facts.ends.latest
    return _overrun(fragment.nodes, action.end, last, facts)


def _gains_past(action: Grow, facts: _Facts) -> bool:
    job = facts.jobs.get(action.fragment.job_id)
    return job is not None and facts.hits.may_gain(job)


def _overrun(
    nodes: frozenset[str], end: datetime, last: Mapping[str, Optional[datetime]], facts: _Facts
) -> Optional[Fault]:
    for name in sorted(nodes):
        if name not in facts.holes:
            return Fault(Reason(Why.GONE, Detail(nodes=(name,))), lost=frozenset({name}))
        latest = last[name]
        if latest is not None and end > latest:
            detail = Detail(nodes=(name,), by=facts.holes[name].by)
            return Fault(Reason(Why.HOLE_SHORT, detail), Why.HOLE_SHORT)
    return None
