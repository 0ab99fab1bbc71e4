"""What the deciding part of a tick costs at the size of a large machine: CPU seconds, no Slurm.

Made of model values only: a machine with so many nodes and jobs of 64 fragments, and a half and a
quarter of both beside it (so of the fragments in all, too): what grows faster than the machine
shows there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

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
    Said,
    Slurm,
    Snapshot,
)
from slurm_hooks.planning.guard import guard
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.settings import Settings

RUNS = 3
SHARES = (0.25, 0.5, 1.0)
NODES, JOBS, FRAGMENTS = 10_000, 300, 64  # of the whole; fragments of each job
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
LEASE = timedelta(minutes=10)
BUSY_SHARE = 0.7  # of the nodes, those that fragments are on
PARTITIONS = frozenset({"malleable", "main"})


@dataclass(frozen=True)
class Cost:
    """One size and the least CPU seconds of several runs: plan without its solver, and guard."""

    nodes: int
    jobs: int
    fragments: int  # of each job
    plan_s: float
    solver_s: float
    guard_s: float
    actions: int


def costs() -> list[Cost]:
    """The costs at a quarter, a half and the whole of the machine and its jobs."""
    return [measure(round(NODES * share), round(JOBS * share), FRAGMENTS) for share in SHARES]


def measure(nodes: int, jobs: int, fragments: int) -> Cost:
    """Plan and guard a machine of this size; the minimum of each part over the runs."""
    seen = snapshot(nodes, jobs, fragments)
    settings = Settings()
    plans: list[float] = []
    solvers: list[float] = []
    guards: list[float] = []
    actions = 0
    for _ in range(RUNS):
        began = time.process_time()
        plan = make_plan(seen, settings, time.process_time)
        planned = time.process_time()
        guard(plan, seen, seen, settings)
        guards.append(time.process_time() - planned)
        solvers.append(plan.solve.seconds)
        plans.append(planned - began - plan.solve.seconds)
        actions = len(plan.actions)
    least = [round(min(found), 3) for found in (plans, solvers, guards)]
    return Cost(nodes, jobs, fragments, *least, actions)


def snapshot(nodes: int, jobs: int, fragments: int) -> Snapshot:
    """Jobs of 1 to `fragments` nodes on most of the machine, each with half of its fragments
    running for as long as nodes last, and planned starts of others that close some holes."""
    names = [f"n{i}" for i in range(nodes)]
    busy = names[: round(BUSY_SHARE * nodes)]
    free = iter(busy)
    found = tuple(_job(j + 1, fragments, free) for j in range(jobs))
    taken = {name for job in found for name in job.nodes}
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
        slurm=Slurm((22, 5, 8), timedelta(seconds=30), timedelta(seconds=300), 1001, 100_000),
        nodes=tuple(Node(name, state, PARTITIONS) for name, state in states),
        jobs=found,
        planned=tuple(starts),
        records=jobs * fragments,
    )


def _job(job_id: int, fragments: int, free: Iterator[str]) -> MalleableJob:
    hole = timedelta(seconds=120)
    request = Request(1, fragments, fragments, LEASE, hole, excluded=frozenset())
    running = [name for _, name in zip(range(fragments // 2), free)]
    found = tuple(
        _running(FragmentId(job_id, i), request, running[i])
        if i < len(running)
        else Fragment(FragmentId(job_id, i), FragmentState.HELD, Mark(request), has_agent=True)
        for i in range(fragments)
    )
    return MalleableJob(job_id, f"u{job_id % 17}", "malleable", request, found, NOW - LEASE)


def _running(fragment: FragmentId, request: Request, node: str) -> Fragment:
    """Some of them are due for a renewal, others are not."""
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


def table(found: list[Cost]) -> str:
    """The costs for people to read."""
    lines = ["  nodes  jobs  fragments  plan s  solver s  guard s  actions"]
    lines += [
        f"{c.nodes:7}{c.jobs:6}{c.fragments:11}{c.plan_s:8.2f}{c.solver_s:10.2f}"
        f"{c.guard_s:9.3f}{c.actions:9}"
        for c in found
    ]
    return "\n".join(lines)
