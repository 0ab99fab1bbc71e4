"""First come first served with EASY backfill: when jobs would start on an otherwise empty machine.

The first job of the queue has a start promised for the moment at which enough running jobs will
have used up their requested time; later jobs may start before it if that does not delay it (Lifka
1995). Real machines leave far more idle than this: clean-up, shapes, reservations and drains are
not in a workload log.
"""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from slurm_hooks.replay.logs.swf import RigidJob, Workload


@dataclass
class _State:
    """Free nodes, running jobs by real end and by expected end."""

    free: int
    ends: list[tuple[float, int]] = field(default_factory=list)
    expected: list[tuple[float, int, int]] = field(default_factory=list)  # end, nodes, position


def reschedule(
    workload: Workload, late_s: Optional[Mapping[int, float]] = None
) -> tuple[RigidJob, ...]:
    """The jobs with new starts, in the log's order.

    Jobs that ran already keep their start. `late_s` delays the start of some jobs (by number) by
    so many seconds during which their nodes are not yet free of others. A job that asks for more
    nodes than there are never starts and is left out.
    """
    late = late_s or {}
    jobs = workload.jobs
    starts: dict[int, float] = {}
    state = _State(workload.nodes)
    for at, job in enumerate(jobs):
        if job.is_running:
            _start(state, at, job, 0.0, job.run_s)
            starts[at] = 0.0
    coming = [
        (job.submit_s, at)
        for at, job in enumerate(jobs)
        if not job.is_running and job.nodes <= workload.nodes
    ]
    coming.sort(reverse=True)
    queue: list[int] = []
    while coming or queue:
        now = min(
            coming[-1][0] if coming else math.inf,
            state.ends[0][0] if state.ends else math.inf,
        )
        while state.ends and state.ends[0][0] <= now:
            _, at = heapq.heappop(state.ends)
            state.free += jobs[at].nodes
            state.expected.remove(next(e for e in state.expected if e[2] == at))
        while coming and coming[-1][0] <= now:
            queue.append(coming.pop()[1])
        for at in _startable(state, queue, jobs, now):
            delay = late.get(jobs[at].number, 0.0)
            starts[at] = now + delay
            _start(state, at, jobs[at], now, delay + jobs[at].run_s)
        queue = [at for at in queue if at not in starts]
    return tuple(replace(job, start_s=starts[at]) for at, job in enumerate(jobs) if at in starts)


def _start(state: _State, at: int, job: RigidJob, now: float, busy_s: float) -> None:
    state.free -= job.nodes
    heapq.heappush(state.ends, (now + busy_s, at))
    insort(state.expected, (now + max(job.request_s, 1.0), job.nodes, at))


def _startable(
    state: _State, queue: Sequence[int], jobs: Sequence[RigidJob], now: float
) -> list[int]:
    """Those that start now: the head of the queue as far as it fits, then backfill behind it."""
    free, begun = state.free, []
    expected = list(state.expected)
    waiting = list(queue)
    while waiting and jobs[waiting[0]].nodes <= free:
        at = waiting.pop(0)
        begun.append(at)
        free -= jobs[at].nodes
        insort(expected, (now + jobs[at].request_s, jobs[at].nodes, at))
    if not waiting or not free:
        return begun
    promised, spare = _promise(expected, free, jobs[waiting[0]].nodes, now)
    for at in waiting[1:]:
        job = jobs[at]
        if job.nodes > free:
            continue
        is_short = now + job.request_s <= promised
        if not is_short and job.nodes > spare:
            continue
        begun.append(at)
        free -= job.nodes
        if not is_short:
            spare -= job.nodes
    return begun


def _promise(
    expected: Sequence[tuple[float, int, int]], free: int, wanted: int, now: float
) -> tuple[float, int]:
    """When `wanted` nodes will be free at the latest, and how many more will be then.

    Jobs past their request are expected to end now.
    """
    for end, nodes, _ in expected:
        free += nodes
        if free >= wanted:
            return max(end, now), free - wanted
    return math.inf, 0
