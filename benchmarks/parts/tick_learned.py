"""Processor milliseconds that learned jobs add to a tick, without Slurm.

Each job has told a few sizes, on the machine of `tick_plan`. A new process has judged no report
before, and a loop judges only reports that are new.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from parts.printing import Row, seconds_of
from parts.tick_plan import FRAGMENTS, JOBS, NODES, own_state, snapshot

from slurm_hooks.learning.learned import learn
from slurm_hooks.model import MalleableJob, Rate, Telemetry
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.settings.values import Settings
from slurm_hooks.tick.observe import with_learned

SIZES = (1, 2, 8, 32)
RUNS = 5


def learned_costs() -> Row:
    """Return the milliseconds of each part of a tick, the least of some runs."""
    with own_state() as settings:
        return _costs(settings)


def _costs(settings: Settings) -> Row:
    seen = snapshot(NODES, JOBS, FRAGMENTS)
    telling = replace(seen, jobs=tuple(map(_teller, seen.jobs)))
    known = with_learned(telling)
    assert all(each.curve for each in known.learned.values())

    def learn_all() -> None:
        learn.cache_clear()
        with_learned(telling)

    parts = {
        "all_new_ms": learn_all,
        "nothing_new_ms": lambda: with_learned(telling),
        "plan_ms": lambda: make_plan(seen, settings, time.process_time),
        "plan_learned_ms": lambda: make_plan(known, settings, time.process_time),
    }
    costs = {name: round(min(_ms(part) for _ in range(RUNS)), 1) for name, part in parts.items()}
    return {"jobs": len(seen.jobs), **costs}


def _ms(part: Callable[[], object]) -> float:
    return 1000 * seconds_of(part, time.process_time)


def _teller(job: MalleableJob) -> MalleableJob:
    sync = 0.01 + (job.job_id % 17) / 100
    wobble = 1 + job.job_id / 1e5
    rates = (Rate(n, wobble * n / (1 + sync * (n - 1) ** 0.7), 0.01, 0) for n in SIZES)
    first = replace(job.fragments[0], telemetry=Telemetry(tuple(rates)))
    return replace(job, fragments=(first, *job.fragments[1:]))
