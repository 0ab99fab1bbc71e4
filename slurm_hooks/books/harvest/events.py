"""A tick's record as events with a number each. The report and the counters add the numbers up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import NamedTuple

from slurm_hooks.books.harvest.jobs import JobLine
from slurm_hooks.books.harvest.values import Ending, Record

USED = "harvested_node_seconds"
RELEASES = "releases"
ENDS = "ends"
DRAWN = ("nodes", "idle_nodes")  # of how things stand, for the pictures of a report
LONGEST = "longest_tick_seconds"  # the only name whose greatest value counts, and not the sum


class Event(NamedTuple):
    """An event of a kind. The label divides the kind. `more` is JSON if the single event counts,
    and not only the sum."""

    name: str
    value: float
    label: str = ""
    job_id: int = 0
    at_s: float = 0.0  # 0: the time of the tick
    more: str = ""


def events_of(record: Record, lines: Mapping[int, JobLine]) -> Iterator[Event]:
    """Yield what happened since the last tick. Names are those of the metrics, without prefix."""
    cost = record.cost
    yield from (Event("ticks", 1), Event("tick_seconds", cost.seconds))
    yield from (Event(LONGEST, cost.seconds), Event("commands", cost.commands))
    yield from (Event("rpcs", cost.rpcs), Event("refused_changes", cost.refused))
    yield from (Event("span_seconds", record.span_s), Event("unseen_seconds", record.unseen_s))
    yield Event("uncertain_node_seconds", record.uncertain_node_s)
    yield Event("core_node_seconds", record.core_node_s)
    yield Event("promised_starts", record.starts)
    for reason, _, node_s in record.idle:
        yield Event("idle_node_seconds", node_s, reason.value)
    for name, _, past in record.unused:
        yield from (Event(f"unused_{name}_seconds", s, where) for where, s in asdict(past).items())
    for done in record.done:
        yield Event("done", done.fragments, f"{done.verb} {done.cause}")
    yield from _of_jobs(record, lines)
    for ending in record.endings:
        yield from _of_ending(ending)
    for delay in record.delays:
        told = {"job_id": delay.job_id, "planned": delay.planned.timestamp()}
        more = json.dumps({**told, "started": delay.started.timestamp()})
        yield Event("delayed_jobs", delay.held_s > 0)
        yield Event("delay_seconds", delay.held_s, more=more)


def _of_jobs(record: Record, lines: Mapping[int, JobLine]) -> Iterator[Event]:
    used = [(job.job_id, job.node_s) for job in record.jobs]
    used += [(job.job_id, job.node_s) for job in record.forgotten if job.job_id in lines]
    yield from (Event(USED, s, lines[job_id].user, job_id) for job_id, s in used if s)
    for job in record.jobs:
        if job.releases:
            yield Event(RELEASES, job.releases, "", job.job_id)


def _of_ending(ending: Ending) -> Iterator[Event]:
    kind, job_id, at_s = ending.kind.value, ending.fragment.job_id, ending.at.timestamp()
    told = {"fragment": ending.fragment.index, "cause": ending.cause[:80], "nodes": ending.nodes}
    took = {"taken": sorted(ending.taken), "taker": ending.taker}
    more = json.dumps({**told, "ran_s": ending.ran_s, **took})
    yield Event(ENDS, 1, kind, job_id, at_s, more)
    yield Event("ended_node_seconds", ending.node_s, kind, job_id, at_s)


def standing_of(record: Record) -> Iterator[Event]:
    """Yield how things stand after the tick."""
    nodes, idle = record.nodes, record.idle
    yield Event("last_tick_timestamp_seconds", record.at.timestamp())
    yield Event("last_tick_duration_seconds", record.cost.seconds)
    yield Event("last_tick_solver_seconds", record.cost.solver_s)
    yield Event("no_growth_seconds", record.no_growth_s)
    yield Event("jobs", len(record.jobs))
    yield from (Event("limited_jobs", jobs, why.value) for why, jobs in record.whys)
    yield from (Event("nodes", nodes.ours, "ours"), Event("nodes", nodes.busy, "others"))
    yield Event("nodes", nodes.out, "out_of_service")
    yield Event("nodes", sum(now for _, now, _ in idle), "idle")
    yield from (Event("idle_nodes", now, reason.value) for reason, now, _ in idle)
    for name, now, _ in record.unused:
        yield from (Event(f"unused_{name}s", n, where) for where, n in asdict(now).items())
