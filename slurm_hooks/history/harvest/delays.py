"""Delays of other jobs, measured against the starts that Slurm had published."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from slurm_hooks.history.harvest.values import Delay, Promise
from slurm_hooks.model import Snapshot

KEPT = timedelta(hours=1)  # for a promise whose job is neither planned nor started any more
MOST = 5000  # of these promises: cancelled jobs leave them behind, some for a start in weeks


@dataclass(frozen=True)
class Stay:
    """The nodes of a fragment, or its `part` of each, between two times."""

    nodes: frozenset[str]
    start: datetime
    end: datetime
    part: float = 1


def settle(
    promises: Sequence[Promise], seen: Snapshot, since: datetime, stays: Iterable[Stay]
) -> tuple[tuple[Promise, ...], tuple[Delay, ...], int]:
    """Return the open promises, old and new, the delays of jobs that have started, and the
    number of started jobs, late or not. `stays` are our fragments' nodes since the last tick, at
    `since`."""
    planned = {p.job_id: p for p in seen.planned}
    started = {s.job_id: s for s in seen.started}
    recent = [replace(stay, start=max(stay.start, since)) for stay in stays]
    known: dict[str, Promise] = {}
    adrift: list[Promise] = []
    delays: list[Delay] = []
    for promise in promises:
        if promise.job_id in started:
            start = started[promise.job_id]
            held_s = promise.held_s + _held_s(promise, start.nodes, start.start, recent)
            if start.start > promise.start:
                delays.append(Delay(promise.job_id, promise.start, start.start, held_s))
        elif promise.job_id in planned:
            held_s = _held_s(promise, planned[promise.job_id].nodes, seen.now, recent)
            known[promise.job_id] = replace(promise, held_s=promise.held_s + held_s)
        elif seen.now - promise.start < KEPT:
            adrift.append(promise)
    adrift.sort(key=lambda promise: (promise.start, promise.job_id))
    known.update((promise.job_id, promise) for promise in adrift[:MOST])
    for job_id, plan in planned.items():
        known.setdefault(job_id, Promise(job_id, plan.start))
    count = sum(promise.job_id in started for promise in promises)
    return tuple(known[job_id] for job_id in sorted(known)), tuple(delays), count


def _held_s(
    promise: Promise, nodes: frozenset[str], until: datetime, stays: Iterable[Stay]
) -> float:
    """Return the longest time of any of our fragments on the job's nodes after its promised
    start."""
    spans = (
        min(stay.end, until) - max(stay.start, promise.start)
        for stay in stays
        if stay.nodes & nodes
    )
    return max((max(span.total_seconds(), 0.0) for span in spans), default=0.0)
