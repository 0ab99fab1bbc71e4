"""The last check before anything is written: does the plan still fit a fresh look?

What does not is dropped, with its reason; the next tick plans again.
"""

from __future__ import annotations

from datetime import timedelta

from slurm_hooks.core.holes import holes_of, latest_end
from slurm_hooks.model import Action, Grow, NodeState, Plan, Renew, Snapshot
from slurm_hooks.settings import Lease


def needs_guard(plan: Plan) -> bool:
    """True if the plan gives anybody a node for longer; leaving is always safe."""
    return any(isinstance(action, (Grow, Renew)) for action in plan.actions)


def guard(plan: Plan, seen: Snapshot, fresh: Snapshot, lease: Lease) -> Plan:
    """The plan without what would now break a promise.

    Slurm checks the start of a fragment against reservations, but not a renewal: this does.
    """
    kept: list[Action] = []
    notes: list[str] = []
    for action in plan.actions:
        fault = _fault(action, seen, fresh, lease)
        if fault:
            notes.append(f"not done: {type(action).__name__.lower()} {_subject(action)}: {fault}")
        else:
            kept.append(action)
    return plan.with_actions(tuple(kept), *notes)


def _subject(action: Action) -> object:
    return getattr(action, "fragment", "")


def _fault(action: Action, seen: Snapshot, fresh: Snapshot, lease: Lease) -> str:
    if isinstance(action, Grow):
        states = {node.name: node.state for node in fresh.nodes}
        lost = [n for n in sorted(action.nodes) if states.get(n) is not NodeState.FREE]
        if lost:
            return f"{', '.join(lost)} is no longer free"
        return _overrun(action.nodes, action.limit, fresh, lease)
    if isinstance(action, Renew):
        return _renewal_fault(action, seen, fresh, lease)
    return ""


def _renewal_fault(action: Renew, seen: Snapshot, fresh: Snapshot, lease: Lease) -> str:
    fragment = {f.id: f for job in seen.jobs for f in job.fragments}.get(action.fragment)
    if fragment is None or fragment.start is None:
        return "the fragment is gone"
    if fragment.end is not None and fragment.start + action.limit <= fragment.end:
        return ""  # a shorter lease is always safe
    remaining = fragment.start + action.limit - fresh.now
    return _overrun(fragment.nodes, remaining, fresh, lease)


def _overrun(nodes: frozenset[str], length: timedelta, fresh: Snapshot, lease: Lease) -> str:
    holes = holes_of(fresh)
    for name in sorted(nodes):
        if name not in holes:
            return f"{name} is gone"
        latest = latest_end(holes[name], fresh.slurm, lease)
        if latest is not None and fresh.now + length > latest:
            return f"{name} is wanted by {holes[name].by} sooner"
    return ""
