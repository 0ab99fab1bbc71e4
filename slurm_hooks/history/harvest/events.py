"""A tick as events with a number each. The report and the counters add the numbers up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from zlib import crc32

from slurm_hooks.history.harvest.endings import OCCUPIES, in_holes, part_of
from slurm_hooks.history.harvest.jobs import JobLine
from slurm_hooks.history.harvest.values import Cost, Ending, Event, Record, Seen
from slurm_hooks.model import LIVE_STATES, NodeState, Of, Plan, Snapshot, Why
from slurm_hooks.model.unused import NOT_UNUSED, Unused

USED = "harvested_node_seconds"
RELEASES = "releases"
ENDS = "ends"
DRAWN = ("nodes", "idle_nodes")  # of how things stand, for the pictures of a report
LONGEST = "longest_tick_seconds"  # the only name whose greatest value counts, and not the sum


def core_nodes(seen: Snapshot) -> float:
    """Return how many nodes cores have now, or parts of nodes."""
    nodes = {node.name: node for node in seen.nodes}
    cores = (f for job in seen.jobs for f in job.core if f.state in OCCUPIES)
    return sum(len(f.nodes) * part_of(f, nodes) for f in cores)


def done(plan: Plan) -> Iterator[Event]:
    """Yield the counts of the plan's actions. A fragment counts once, with its weightiest part. A
    hold with a renewal counts as a hold."""
    counts = Counter(f"{intent.parts[0]} {intent.cause.value}" for intent in plan.actions)
    yield from (Event("done", count, action) for action, count in sorted(counts.items()))


def idle_seconds(before: Seen, plan: Plan, known_s: float, new_s: float) -> Iterator[Event]:
    """Yield idle node-seconds since the last tick, by its reasons.

    Time beyond `known_s` has no reason. `new_s` are node-seconds of runs that have begun since,
    which the last tick counted as starting."""
    seconds = dict.fromkeys(Of.IDLE.whys, 0.0)
    seconds.update((reason, n * known_s) for reason, n in before.idle)
    seconds[Why.STARTING] = max(seconds[Why.STARTING] - new_s, 0.0)
    now = {item.reason for item in plan.idle if item.nodes}
    for reason in Of.IDLE.whys:
        if seconds[reason] or reason in now:
            yield Event("idle_node_seconds", seconds[reason], reason.value)


def unused_seconds(before: Seen, now: Mapping[str, Unused], known_s: float) -> Iterator[Event]:
    """Yield the unused amounts of the last tick times the seconds since."""
    past = {**dict.fromkeys(now, NOT_UNUSED), **dict(before.unused)}
    for name, unused in past.items():
        yield from _by_place(f"unused_{name}_seconds", unused.times(known_s))


def _by_place(name: str, unused: Unused) -> Iterator[Event]:
    return (Event(name, amount, where) for where, amount in asdict(unused).items())


def standing_of(
    before: Seen,
    seen: Snapshot,
    plan: Plan,
    cost: Cost,
    unused: Mapping[str, Unused],
    partitions: frozenset[str],
) -> Iterator[Event]:
    """Yield how things stand after the tick. Growth is forbidden for at least 1 s, or not at all. A
    job may have several reasons for its size. What the last tick saw and has gone is 0."""
    yield Event("last_tick_timestamp_seconds", seen.now.timestamp())
    yield Event("last_tick_duration_seconds", cost.seconds)
    yield Event("last_tick_solver_seconds", cost.solver_s)
    forbidden_s = (seen.now - seen.no_growth.since).total_seconds() if seen.no_growth else 0.0
    yield Event("no_growth_seconds", max(1.0, forbidden_s) if seen.no_growth else 0.0)
    yield Event("jobs", len(seen.jobs))
    whys = Counter(why for job in plan.jobs for why in {reason.why for reason in job.reasons})
    yield from (Event("limited_jobs", whys[w], w.value) for w in Of.JOB.whys if whys[w])
    yield from _nodes(seen, partitions)
    idle = {**{reason: 0 for reason, _ in before.idle}, **{i.reason: i.nodes for i in plan.idle}}
    yield Event("nodes", sum(idle.values()), "idle")
    yield from (Event("idle_nodes", nodes, reason.value) for reason, nodes in idle.items())
    for name in {**dict(before.unused), **unused}:
        yield from _by_place(f"unused_{name}s", unused.get(name, NOT_UNUSED))


def _nodes(seen: Snapshot, partitions: frozenset[str]) -> Iterator[Event]:
    """Yield the nodes of the lanes: ours, other jobs', and out of service. If we have a part of a
    node, the part counts as ours and the rest as other jobs'."""
    nodes = {n.name: n for n in seen.nodes if n.partitions & partitions}
    parts: dict[str, float] = {}
    for fragment in (f for f in in_holes(seen) if f.state in LIVE_STATES):
        for name in fragment.nodes & nodes.keys():
            parts[name] = min(1, parts.get(name, 0) + part_of(fragment, nodes))
    up = {n for n, node in nodes.items() if node.state is not NodeState.DOWN}
    ours = sum(part for name, part in parts.items() if name in up)
    free = sum(nodes[n].state is NodeState.FREE for n in up - parts.keys())
    in_use = (NodeState.BUSY, NodeState.SHARED)
    busy: float = sum(nodes[n].state in in_use for n in up - parts.keys())
    busy += sum(1 - part for name, part in parts.items() if name in up and part < 1)
    yield from (Event("nodes", ours, "ours"), Event("nodes", busy, "others"))
    yield Event("nodes", round(len(nodes) - ours - busy - free), "out_of_service")


def events_of(record: Record, lines: Mapping[int, JobLine]) -> Iterator[Event]:
    """Yield all events since the last tick."""
    yield from record.since
    yield from _of_jobs(record, lines)
    for ending in record.endings:
        yield from _of_ending(ending)
    for delay in record.delays:
        details = {"job_id": delay.job_id, "planned": delay.planned.timestamp()}
        more = json.dumps({**details, "started": delay.started.timestamp()})
        part = crc32(delay.job_id.encode())  # ticks of the same second have delays of other jobs
        yield Event("delayed_jobs", delay.held_s > 0)
        yield Event("delay_seconds", delay.held_s, part=part, more=more)


def _of_jobs(record: Record, lines: Mapping[int, JobLine]) -> Iterator[Event]:
    used = [(job.job_id, job.node_s) for job in record.jobs]
    used += [(job.job_id, job.node_s) for job in record.forgotten if job.job_id in lines]
    yield from (Event(USED, s, lines[job_id].user, job_id) for job_id, s in used if s)
    for job in record.jobs:
        if job.releases:
            yield Event(RELEASES, job.releases, "", job.job_id)


def _of_ending(ending: Ending) -> Iterator[Event]:
    kind, job_id, at_s = ending.kind.value, ending.fragment.job_id, ending.at.timestamp()
    details = {"cause": ending.cause[:80], "nodes": ending.nodes}
    took = {"taken": sorted(ending.taken), "taker": ending.taker}
    more = json.dumps({**details, "ran_s": ending.ran_s, **took})
    yield Event(ENDS, 1, kind, job_id, at_s, ending.fragment.index, more)
    yield Event("ended_node_seconds", ending.node_s, kind, job_id, at_s)
