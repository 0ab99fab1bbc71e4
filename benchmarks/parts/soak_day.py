"""The input of `make soak`, and the evaluation of its readings. Pure.

A part of a log becomes ordinary jobs, the holes become a record for the replay, and growth of
memory and files is judged.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_hooks.replay.logs.swf import Workload
from slurm_hooks.replay.record import Interval, Record

END_S = 5.0  # a job's own start and end, within its limit


@dataclass(frozen=True)
class Ordinary:
    """A job of another user: submitted at `at_s` after the beginning, runs for `run_s`,
    with its limit.
    """

    at_s: float
    nodes: int
    run_s: float
    limit_min: int


def ordinary_jobs(
    workload: Workload, from_s: float, hours: float, compress: float
) -> list[Ordinary]:
    """The jobs that had nodes within these hours of the log, `compress` times as fast.

    They are in the order of their submissions. A job that ran at the beginning is submitted then,
    with its remaining time.
    """
    to_s, ordinary = from_s + hours * 3600, []
    for job in workload.jobs:
        if job.start_s >= to_s or job.end_s <= from_s:
            continue
        gone_s = max(0.0, from_s - job.start_s)
        run_s = (job.run_s - gone_s) / compress
        limit_s = max((job.request_s - gone_s) / compress, run_s + END_S)
        at_s = max(0.0, job.submit_s - from_s) / compress
        ordinary.append(Ordinary(at_s, job.nodes, run_s, math.ceil(limit_s / 60)))
    return sorted(ordinary, key=lambda job: job.at_s)


@dataclass(frozen=True)
class Seen:
    """The nodes of others and of ours at a moment, in seconds since the beginning."""

    at_s: float
    others: frozenset[str]
    ours: frozenset[str]


def holes(seen: Sequence[Seen], nodes: Sequence[str]) -> Record:
    """The times at which each node was free of others' jobs, as far as the readings show."""
    intervals = []
    for place, name in enumerate(nodes):
        since = None
        for look in seen:
            if name in look.others:
                if since is not None:
                    intervals.append(Interval(place, since, look.at_s))
                since = None
            elif since is None:
                since = look.at_s
        if since is not None and since < seen[-1].at_s:
            intervals.append(Interval(place, since, seen[-1].at_s))
    return Record(tuple(intervals), len(nodes), seen[0].at_s, seen[-1].at_s)


def used_node_s(seen: Sequence[Seen]) -> float:
    """Node-seconds of malleable jobs."""
    return math.fsum(len(a.ours) * (b.at_s - a.at_s) for a, b in zip(seen, seen[1:]))


@dataclass(frozen=True)
class Growth:
    """A quantity early (after all jobs have started) and late: medians of the second and
    the last fifth.
    """

    early: float
    late: float
    per_hour: float


def growth(samples: Sequence[tuple[float, Mapping[str, float]]], name: str) -> Growth:
    """The growth of a sampled quantity. `samples` are (seconds, values by name), at least ten."""
    known = [(at_s, values[name]) for at_s, values in samples if name in values]
    fifth = max(1, len(known) // 5)
    early, late = known[fifth : 2 * fifth], known[-fifth:]
    first, last = (statistics.median(value for _, value in part) for part in (early, late))
    hours = (statistics.mean(t for t, _ in late) - statistics.mean(t for t, _ in early)) / 3600
    return Growth(first, last, (last - first) / hours if hours else 0.0)


def leaks(growths: Mapping[str, Growth], allowed: Mapping[str, float]) -> list[str]:
    """The names that grew by more than their limit."""
    return [
        f"{name} grew from {growths[name].early:g} to {growths[name].late:g}"
        for name, most in sorted(allowed.items())
        if growths[name].late - growths[name].early > most
    ]
