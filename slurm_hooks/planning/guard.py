"""The last check before anything is written: does the plan still fit a fresh look?

What does not is dropped, with its reason; the next tick plans again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Optional

from slurm_hooks.model import (
    Action,
    Fragment,
    FragmentId,
    FragmentState,
    Grow,
    Hole,
    NodeState,
    Notice,
    Plan,
    PutBack,
    Renew,
    Snapshot,
    verb_of,
)
from slurm_hooks.planning.holes import holes_of, latest_end
from slurm_hooks.settings import Lease


def needs_guard(plan: Plan) -> bool:
    """True if the plan gives anybody a node for longer; leaving is always safe."""
    return any(isinstance(action, (Grow, Renew)) for action in plan.actions)


def guard(plan: Plan, seen: Snapshot, fresh: Snapshot, lease: Lease) -> Plan:
    """The plan without what would now break a promise.

    Slurm checks the start of a fragment against reservations, but not a renewal: this does. A job
    that would start with less than its minimum does not start at all.
    """
    facts = _facts(seen, fresh, lease)
    faults = {id(action): _fault(action, facts) for action in plan.actions}
    short = _short_gangs(plan, seen, faults)
    for action in plan.actions:
        if isinstance(action, Grow) and action.fragment.job_id in short:
            faults[id(action)] = faults[id(action)] or short[action.fragment.job_id]
    kept = tuple(action for action in plan.actions if not faults[id(action)])
    notes = (
        f"not done: {verb_of(action)} {getattr(action, 'fragment', '')}: {fault}"
        for action in plan.actions
        if (fault := faults[id(action)])
    )
    return plan.with_actions(kept, *notes)


@dataclass(frozen=True)
class _Facts:
    """The fresh look, ready to be asked about single actions."""

    now: datetime
    states: Mapping[str, NodeState]
    holes: Mapping[str, Hole]
    latest: Mapping[str, Optional[datetime]]
    fragments: Mapping[FragmentId, Fragment]


def _facts(seen: Snapshot, fresh: Snapshot, lease: Lease) -> _Facts:
    holes = holes_of(fresh)
    return _Facts(
        now=fresh.now,
        states={node.name: node.state for node in fresh.nodes},
        holes=holes,
        latest={name: latest_end(hole, fresh.slurm, lease) for name, hole in holes.items()},
        fragments={f.id: f for job in seen.jobs for f in job.fragments},
    )


def _short_gangs(plan: Plan, seen: Snapshot, faults: Mapping[int, str]) -> dict[int, str]:
    """Jobs whose remaining fragments would be fewer than their minimum, and for want of what."""
    sizes: defaultdict[int, int] = defaultdict(int)
    lost: defaultdict[int, list[str]] = defaultdict(list)
    going = {a.fragment for a in plan.actions if isinstance(a, (Notice, PutBack))}
    for action in plan.actions:
        if isinstance(action, Grow):
            sizes[action.fragment.job_id] += 0 if faults[id(action)] else len(action.nodes)
            lost[action.fragment.job_id] += sorted(action.nodes) if faults[id(action)] else []
    on_nodes = (FragmentState.RUNNING, FragmentState.PENDING)
    for job in seen.jobs:
        here = (f for f in job.fragments if f.state in on_nodes and not f.is_leaving)
        sizes[job.job_id] += sum(len(f.nodes) for f in here if f.id not in going)
    needed = {job.job_id: job.request.min_nodes for job in seen.jobs}
    return {
        job_id: f"without {', '.join(names)} its job cannot reach its minimum"
        for job_id, names in lost.items()
        if names and sizes[job_id] < needed.get(job_id, 0)
    }


def _fault(action: Action, facts: _Facts) -> str:
    if isinstance(action, Grow):
        lost = [n for n in sorted(action.nodes) if facts.states.get(n) is not NodeState.FREE]
        if lost:
            return f"{', '.join(lost)} is no longer free"
        return _overrun(action.nodes, facts.now + action.limit, facts)
    if isinstance(action, Renew):
        return _renewal_fault(action, facts)
    return ""


def _renewal_fault(action: Renew, facts: _Facts) -> str:
    fragment = facts.fragments.get(action.fragment)
    if fragment is None or fragment.start is None:
        return "the fragment is gone"
    if fragment.end is None or action.end <= fragment.end:
        return ""  # a shorter lease is always safe
    return _overrun(fragment.nodes, action.end, facts)


def _overrun(nodes: frozenset[str], end: datetime, facts: _Facts) -> str:
    for name in sorted(nodes):
        if name not in facts.holes:
            return f"{name} is gone"
        latest = facts.latest[name]
        if latest is not None and end > latest:
            return f"{name} is wanted by {facts.holes[name].by} sooner"
    return ""
