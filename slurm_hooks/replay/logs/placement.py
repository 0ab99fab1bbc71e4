"""Turn jobs without node names into idle intervals of nodes.

A workload log has the number of a job's nodes, but not their names. Here a job gets the free nodes
with the lowest numbers, as from Slurm's default selection on an empty machine. The number of idle
nodes follows from the log alone. But the lengths of a node's idle intervals depend on this choice,
and are not facts about the machine.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass

from slurm_hooks.model.moments import plural
from slurm_hooks.replay.logs.swf import RigidJob
from slurm_hooks.replay.record import Interval, Record


@dataclass(frozen=True)
class Placed:
    """A record of the holes, and the nodes of each job by its position in the list of jobs."""

    record: Record
    nodes: dict[int, tuple[int, ...]]


def place(jobs: Iterable[RigidJob], nodes: int, window_s: float) -> Placed:
    """Put jobs on nodes at their starts. The rest between 0 and `window_s` is idle.

    The end of a hole is known from the submission of the job that ends it. A job may need more
    nodes than are free at its start, since logs round times and machines change. Then it gets the
    free nodes, and the notes count such jobs.
    """
    ranked = sorted(enumerate(jobs), key=lambda e: (e[1].start_s, e[1].submit_s, e[0]))
    free = list(range(nodes))
    idle_since = [0.0] * nodes
    ending: list[tuple[float, int, tuple[int, ...]]] = []
    intervals: list[Interval] = []
    given: dict[int, tuple[int, ...]] = {}
    short = 0
    for at, job in ranked:
        if job.start_s >= window_s:
            break
        while ending and ending[0][0] <= job.start_s:
            end, _, back = heapq.heappop(ending)
            for node in back:
                idle_since[node] = end
                heapq.heappush(free, node)
        count = min(job.nodes, len(free))
        short += count < job.nodes
        mine = tuple(heapq.heappop(free) for _ in range(count))
        known = job.submit_s if job.submit_s < job.start_s else math.inf
        for node in mine:
            if idle_since[node] < job.start_s:
                intervals.append(Interval(node, idle_since[node], job.start_s, known))
        given[at] = mine
        if mine:
            heapq.heappush(ending, (job.end_s, at, mine))
    while ending and ending[0][0] < window_s:
        end, _, back = heapq.heappop(ending)
        for node in back:
            idle_since[node] = end
            free.append(node)
    intervals += [Interval(n, idle_since[n], window_s) for n in free if idle_since[n] < window_s]
    notes = [
        "the log names no nodes: each job was put on the lowest free ones, so how long single "
        "nodes stay idle is a guess; how many are idle is not"
    ]
    if short:
        notes.append(f"{plural(short, 'job')} had fewer free nodes at their start than in the log")
    ordered = tuple(sorted(intervals, key=lambda i: (i.start_s, i.node)))
    return Placed(Record(ordered, nodes, 0.0, window_s, notes=tuple(notes)), given)
