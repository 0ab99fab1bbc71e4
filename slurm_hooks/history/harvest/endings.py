"""Runs of fragments in holes: their nodes, and how and when they ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Optional

from slurm_hooks.history.harvest.values import SeenRun
from slurm_hooks.model import (
    ENDED_STATES,
    Fragment,
    FragmentState,
    Node,
    Said,
    Slurm,
    Snapshot,
    Why,
)
from slurm_hooks.model.ends import is_death, requeue_of

OCCUPIES = frozenset({FragmentState.RUNNING, FragmentState.SUSPENDED, FragmentState.ENDING})
_ON = OCCUPIES | {FragmentState.UNKNOWN}  # while ENDING, the way it ends is unknown


def in_holes(seen: Snapshot) -> Iterator[Fragment]:
    """Return all fragments except cores, which are ordinary jobs and use no idle nodes."""
    return (f for job in seen.jobs for f in job.fragments if not f.is_core)


def part_of(fragment: Fragment, nodes: Mapping[str, Node]) -> float:
    """Return its part of its node, 1 if its job counts nodes or the node is gone."""
    name = next(iter(fragment.nodes), "")
    if fragment.mark.request.slot is None or name not in nodes:
        return 1
    return fragment.asks.part_of(nodes[name].total)


def runs_on(run: SeenRun, fragment: Optional[Fragment]) -> bool:
    """True if the run has not ended, as far as Slurm says."""
    if fragment is None or fragment.state not in _ON:
        return False
    return run_of(fragment) == run.restarts


def run_of(fragment: Fragment) -> int:
    """Return the restart count of its run. While a requeued fragment is still ending, Slurm counts
    it as restarted, with a start that moves with the clock (22.05)."""
    is_requeued = fragment.state is FragmentState.ENDING and fragment.restarts > fragment.mark.run
    return fragment.restarts - is_requeued


def kind_of(run: SeenRun, fragment: Optional[Fragment], down: frozenset[str]) -> tuple[Why, str]:
    """Return how the run ended, and its cause: the `Why` of its leaving, or its exit code. `down`
    are nodes that are down now.

    Slurm does not say why it requeued a fragment. A requeue that neither a tick nor the fragment's
    own agent wanted counts as a preemption.
    """
    if fragment is None:
        return Why.UNKNOWN, ""
    state = fragment.state
    if state is FragmentState.CANCELLED:
        return Why.CANCELLED, ""
    if fragment.said is Said.FINISHED or fragment.mark.is_finished:
        return Why.FINISHED, ""
    gave_up = fragment.said is Said.APART and not is_death(fragment)
    if run.leaves or fragment.said is Said.LEAVING or fragment.is_leaving or gave_up:
        return Why.LEFT, run.leaves
    zero_is_good = not fragment.has_agent or fragment.mark.request.way.zero_is_idle
    if state is FragmentState.DONE and zero_is_good:
        return Why.FINISHED, fragment.exit_code
    if state is FragmentState.LOST or run.nodes & down:
        return Why.NODE_FAILED, ""
    if is_death(fragment):
        return Why.DIED, fragment.exit_code
    if state is FragmentState.TIMED_OUT and _had_its_time(run, fragment):
        return Why.LEASE_ENDED, ""
    return Why.PREEMPTED, ""


def _had_its_time(run: SeenRun, fragment: Fragment) -> bool:
    ends = (fragment.end, run.end)
    return any(end is None for end in ends) or fragment.end >= run.end  # type: ignore[operator]


def end_of(
    run: SeenRun, fragment: Optional[Fragment], since: datetime, seen: Snapshot
) -> tuple[datetime, bool]:
    """Return the end of a run that was on its nodes at `since`, and whether Slurm gave that time.
    A run that Slurm has forgotten ended before its lease did."""
    said = _said_end(fragment, seen.slurm)
    if said is not None and (run.start or since) <= said <= seen.now:
        return said, True
    latest = seen.now
    if fragment is None and run.end is not None:
        latest = max(since, min(run.end, seen.now))
    return since + (latest - since) / 2, False


def _said_end(fragment: Optional[Fragment], slurm: Slurm) -> Optional[datetime]:
    if fragment is not None and fragment.state in ENDED_STATES:
        return fragment.end
    waits = (FragmentState.HELD, FragmentState.PENDING, FragmentState.SPECIAL)
    return requeue_of(fragment, slurm) if fragment and fragment.state in waits else None
