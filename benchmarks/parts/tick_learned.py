"""Processor milliseconds that learned jobs add to a tick, without Slurm.

Jobs of many families have each told a few sizes, on the machine of `tick_plan`. Each tick begins
like a new process: it has the file and no memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from parts.printing import Row, seconds_of
from parts.tick_plan import FRAGMENTS, JOBS, NODES, own_state, snapshot

from slurm_hooks.learning.store import tick
from slurm_hooks.learning.store.connect import learned_path
from slurm_hooks.model import MalleableJob, Rate, Snapshot, Telemetry
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.settings.values import Settings

FAMILY_SIZE = 3
SIZES = (1, 2, 8, 32)
RUNS = 5
STEP = timedelta(seconds=60)


def learned_costs() -> Row:
    """Return the milliseconds of each part of a tick, the least of some runs."""
    with own_state() as settings:
        return _costs(snapshot(NODES, JOBS, FRAGMENTS), settings)


def _costs(seen: Snapshot, settings: Settings) -> Row:
    first = _telling(seen, 0)
    began = time.process_time()
    ticks = 0
    while not _are_all_learned(first, settings):
        first = replace(first, now=first.now + timedelta(seconds=1))
        _remembered(first, settings)
        ticks += 1
    learning_ms = (time.process_time() - began) * 1000
    known = tick.recall(first, settings)
    number = iter(range(1, 99))
    parts = {
        "recall_ms": lambda: _recalled(first, settings),
        "remember_nothing_new_ms": lambda: _remembered(first, settings),
        "remember_all_new_ms": lambda: _remembered(_telling(seen, next(number)), settings),
        "plan_ms": lambda: make_plan(seen, settings, time.process_time),
        "plan_learned_ms": lambda: make_plan(known, settings, time.process_time),
    }
    costs = {name: round(min(_ms(part) for _ in range(RUNS)), 1) for name, part in parts.items()}
    size = learned_path(settings).stat().st_size
    return {
        "jobs": len(seen.jobs),
        "ticks_until_all_were_learned": ticks,
        "learning_all_ms": round(learning_ms),
        **costs,
        "bytes_a_job": round(size / len(seen.jobs)),
    }


def _ms(part: Callable[[], object]) -> float:
    return 1000 * seconds_of(part, time.process_time)


def _recalled(seen: Snapshot, settings: Settings) -> Snapshot:
    tick._held.clear()
    return tick.recall(seen, settings)


def _are_all_learned(seen: Snapshot, settings: Settings) -> bool:
    if not Path(learned_path(settings)).exists():
        return False
    recalled = _recalled(replace(seen, jobs=tuple(map(_silent, seen.jobs))), settings)
    return all(each.curve for each in recalled.learned.values()) and len(recalled.learned) > 0


def _remembered(seen: Snapshot, settings: Settings) -> None:
    warnings = tick.remember(seen, settings)
    assert warnings == (), warnings


def _telling(seen: Snapshot, number: int) -> Snapshot:
    """Every job reports its sizes, each time with slightly different rates."""
    now = seen.now + number * STEP
    return replace(seen, now=now, jobs=tuple(_teller(j, int(now.timestamp())) for j in seen.jobs))


def _teller(job: MalleableJob, at: int) -> MalleableJob:
    sync = 0.01 + (job.job_id % 17) / 100
    wobble = 1 + ((at // 60 + job.job_id) % 7) / 500
    rates = (Rate(n, wobble * n / (1 + sync * (n - 1) ** 0.7), 0.01, at) for n in SIZES)
    request = replace(job.request, name=f"n{job.job_id // FAMILY_SIZE}x")
    first = replace(
        job.fragments[0],
        telemetry=Telemetry(tuple(rates)),
        mark=replace(job.fragments[0].mark, request=request),
    )
    return replace(job, user="u", request=request, fragments=(first, *job.fragments[1:]))


def _silent(job: MalleableJob) -> MalleableJob:
    first = replace(job.fragments[0], telemetry=None)
    return replace(job, fragments=(first, *job.fragments[1:]))
