"""Delays of other people's jobs, measured against the starts that Slurm had published."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from slurm_hooks.books.harvest.values import Delay, Promise
from slurm_hooks.model import Snapshot

KEPT = timedelta(hours=1)  # a promise whose job is neither planned nor started any more
MOST = 5000  # such promises: cancelled jobs leave theirs behind, some with a start weeks ahead


@dataclass(frozen=True)
class Stay:
    """Nodes that one of our fragments was on, or had a `part` of each, between two moments."""

    nodes: frozenset[str]
    start: datetime
    end: datetime
    part: float = 1


def settle(
    promises: Sequence[Promise], seen: Snapshot, since: datetime, stays: Iterable[Stay]
) -> tuple[tuple[Promise, ...], tuple[Delay, ...], int]:
    """The promises that are still open, with those first seen now, the delays of the jobs that
    have started, and how many have, late or not. `stays` are those of our fragments since the
    last tick, which was at `since`."""
    planned = {p.job_id: p for p in seen.planned}
    started = {s.job_id: s for s in seen.started}
    found = [replace(stay, start=max(stay.start, since)) for stay in stays]
    known: dict[str, Promise] = {}
    adrift: list[Promise] = []
    delays: list[Delay] = []
    for promise in promises:
        if promise.job_id in started:
            start = started[promise.job_id]
            held_s = promise.held_s + _held_s(promise, start.nodes, start.start, found)
            if start.start > promise.start:
                delays.append(Delay(promise.job_id, promise.start, start.start, held_s))
        elif promise.job_id in planned:
            held_s = _held_s(promise, planned[promise.job_id].nodes, seen.now, found)
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
    """The longest that one of our fragments was on its nodes after its promised start."""
    spans = (
        min(stay.end, until) - max(stay.start, promise.start)
        for stay in stays
        if stay.nodes & nodes
    )
    return max((max(span.total_seconds(), 0.0) for span in spans), default=0.0)
