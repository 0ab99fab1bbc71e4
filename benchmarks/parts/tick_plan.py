"""Processor seconds of a tick's decisions at the size of a large machine, without Slurm.

The machine has so many nodes, and jobs of 64 fragments. A half and a quarter of both stand beside
it, so a cost that grows faster than the machine shows there.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from parts.printing import Row, timed

from slurm_hooks.model import (
    Fragment,
    FragmentId,
    FragmentState,
    MalleableJob,
    Mark,
    Node,
    NodeState,
    PlannedStart,
    Request,
    Resources,
    Said,
    Slot,
    Slurm,
    Snapshot,
)
from slurm_hooks.planning.check import Half, check
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.settings.values import Mode, Settings, Site

RUNS = 3
SHARES = (0.25, 0.5, 1.0)
NODES, JOBS, FRAGMENTS = 10_000, 300, 64  # of the whole; fragments of each job
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
LEASE = timedelta(minutes=10)
BUSY_SHARE = 0.7  # of the nodes, the nodes with fragments
PARTITIONS = frozenset({"malleable", "main"})
SLURM = Slurm((22, 5, 8), timedelta(seconds=30), timedelta(seconds=300), 1001, 100_000)
GPUS = 8  # of a node that jobs share


def costs() -> list[Row]:
    """Return the costs at a quarter, a half and the whole of the machine and its jobs."""
    return [measure(round(NODES * share), round(JOBS * share), FRAGMENTS) for share in SHARES]


def measure(nodes: int, jobs: int, fragments: int) -> Row:
    """Plan and guard a machine of this size. Return the least seconds of each part."""
    seen, settings, clock = (
        snapshot(nodes, jobs, fragments),
        Settings(mode=Mode("on")),
        time.process_time,
    )
    runs = []
    for _ in range(RUNS):
        plan, whole_s = timed(lambda: make_plan(seen, settings, clock), clock)
        _, guard_s = timed(lambda plan=plan: check(plan, Half.FIRST, seen, seen, settings), clock)
        runs.append((whole_s - plan.solve.seconds, plan.solve.seconds, guard_s))
    plan_s, solver_s, guard_s = (round(min(part), 3) for part in zip(*runs))
    return {
        "nodes": nodes,
        "jobs": jobs,
        "fragments": fragments,
        "plan_s": plan_s,
        "solver_s": solver_s,
        "guard_s": guard_s,
        "actions": len(plan.actions),
    }


@contextmanager
def own_state() -> Iterator[Settings]:
    """Give the shipped settings with a separate state directory."""
    with tempfile.TemporaryDirectory() as place:
        shipped = Settings(mode=Mode("on"))
        site = Site(partitions=("malleable", "parts"), part_nodes="parts")
        tick = replace(shipped.tick, state_dir=f"{place}/state")
        yield replace(shipped, tick=tick, site=site)


def snapshot(nodes: int, jobs: int, fragments: int) -> Snapshot:
    """Jobs of 1 to `fragments` nodes on most of the machine, and planned starts that close some
    holes.

    Half of each job's fragments run, as long as there are nodes.
    """
    names = [f"n{i}" for i in range(nodes)]
    busy = names[: round(BUSY_SHARE * nodes)]
    free = iter(busy)
    all_jobs = tuple(_job(j + 1, fragments, free) for j in range(jobs))
    taken = {name for job in all_jobs for name in job.nodes}
    states = ((n, NodeState.BUSY if n in taken else NodeState.FREE) for n in names)
    draw = random.Random(1)
    starts = (
        PlannedStart(
            str(jobs + 1 + i),
            NOW + timedelta(seconds=300 + 60 * i),
            frozenset(draw.sample(names, max(1, nodes // 200))),
        )
        for i in range(20)
    )
    return Snapshot(
        now=NOW,
        slurm=SLURM,
        nodes=tuple(Node(name, state, PARTITIONS) for name, state in states),
        jobs=all_jobs,
        planned=tuple(starts),
        records=jobs * fragments,
    )


def shared_snapshot(nodes: int, jobs: int, fragments: int) -> Snapshot:
    """GPU nodes with some GPUs used by others, and jobs of 1 to 512 GPUs in the rest.

    A third of the jobs' fragments run. Each GPU has its share of its node.
    """
    draw = random.Random(1)
    others = {f"n{i}": draw.choice((0, 2, 3, 4, 5, 6, 7, 8, 8, 8)) for i in range(nodes)}
    left = iter([name for name, used in others.items() if used < GPUS])
    used, all_jobs = Counter(others), []
    for job_id in range(1, jobs + 1):
        here = [name for _, name in zip(range(fragments // 3), left)]
        taken = {n: max(1, GPUS - used[n] - draw.choice((0, 0, 1))) for n in here}
        used.update(taken)
        alone = {name for name in taken if not others[name]}
        all_jobs.append(_gpu_job(job_id, fragments, taken, alone))
    made = tuple(_gpu_node(name, used[name]) for name in others)
    return Snapshot(NOW, SLURM, made, tuple(all_jobs), records=jobs * fragments)


def gpus(count: int) -> Resources:
    """So many GPUs with their share of a node."""
    return Resources(8 * count, 64_000 * count, (("gpu", count),))


def _gpu_node(name: str, used: int) -> Node:
    state = NodeState.FREE if not used else NodeState.SHARED if used < GPUS else NodeState.BUSY
    whole = gpus(GPUS)
    lanes = PARTITIONS | {"parts"}
    sizes = {"cpus": whole.cpus, "memory_mib": whole.memory_mib, "gres": whole.gres}
    return Node(name, state, lanes, used=gpus(used), **sizes)


def _gpu_job(
    job_id: int, fragments: int, taken: Mapping[str, int], alone: Collection[str]
) -> MalleableJob:
    """Fragments that have a node `alone` are in the partition of whole nodes."""
    hole = timedelta(seconds=120)
    excluded: frozenset[str] = frozenset()
    request = Request(1, 512, fragments, LEASE, hole, excluded=excluded, slot=Slot("gpu"))
    waiting = Fragment(FragmentId(job_id, 0), FragmentState.HELD, Mark(request), has_agent=True)
    all_fragments = [
        replace(waiting, id=FragmentId(job_id, i), asks=gpus(1)) for i in range(fragments)
    ]
    for i, (name, slots) in enumerate(taken.items()):
        runs = _running(all_fragments[i].id, request, name)
        lane = "malleable" if name in alone else "parts"
        mark = replace(runs.mark, slots=slots)
        all_fragments[i] = replace(runs, mark=mark, asks=gpus(slots), lane=lane)
    return MalleableJob(
        job_id, f"u{job_id % 17}", "parts", request, tuple(all_fragments), NOW - LEASE
    )


def _job(job_id: int, fragments: int, free: Iterator[str]) -> MalleableJob:
    hole = timedelta(seconds=120)
    request = Request(1, fragments, fragments, LEASE, hole, excluded=frozenset())
    running = [name for _, name in zip(range(fragments // 2), free)]
    all_fragments = tuple(
        _running(FragmentId(job_id, i), request, running[i])
        if i < len(running)
        else Fragment(FragmentId(job_id, i), FragmentState.HELD, Mark(request), has_agent=True)
        for i in range(fragments)
    )
    return MalleableJob(job_id, f"u{job_id % 17}", "malleable", request, all_fragments, NOW - LEASE)


def _running(fragment: FragmentId, request: Request, node: str) -> Fragment:
    """Running fragments, some of which are due for a renewal."""
    start = NOW - timedelta(seconds=400 - 5 * fragment.index)
    return Fragment(
        fragment,
        FragmentState.RUNNING,
        Mark(request, released=start),
        frozenset({node}),
        start=start,
        end=start + LEASE,
        limit=LEASE,
        said=Said.JOINED,
        has_agent=True,
    )
