"""Totals of a lively week, with names that try to be more than names."""

from __future__ import annotations

import math

from build import NOW, after
from slurm_hooks.history.harvest.totals import Ends, JobLine, Query, Sample, Share, Ticks, Totals
from slurm_hooks.history.harvest.values import Delay, Done
from slurm_hooks.model import Why

HOUR_S = 3600.0
HOSTILE = "</script><script>console.error('told')</script><img src=x onerror=console.error(1)>"


def sample(hour: int) -> Sample:
    others = 40 + 16 * math.sin(hour / 24 * 2 * math.pi)
    ours = (64 - others) * 0.85
    idle = 64 - others - ours
    reasons = {Why.HOLE_SHORT: idle * 0.7, Why.RESTING: idle * 0.3}
    return Sample(after(hour * HOUR_S), ours, others, 0.0, reasons)


def totals() -> Totals:
    users = (
        Share("ada", 900 * HOUR_S, 4, 310, 21),
        Share(HOSTILE, 500 * HOUR_S, 2, 120, 9),
        Share("grace", 130 * HOUR_S, 1, 55, 0),
    )
    job = JobLine(
        71,
        HOSTILE,
        "physics",
        500 * HOUR_S,
        9,
        2,
        9,
        2,
        16,
        NOW,
        after(9 * HOUR_S),
        Why.NO_WORK,
        "",
    )
    return Totals(
        query=Query(NOW, after(168 * HOUR_S)),
        first=NOW,
        last=after(168 * HOUR_S),
        span_s=168 * HOUR_S,
        unseen_s=0.0,
        node_s=1530 * HOUR_S,
        all_node_s=1530 * HOUR_S,
        uncertain_node_s=0.0,
        idle={Why.HOLE_SHORT: 200 * HOUR_S, Why.RESTING: 70 * HOUR_S},
        users=users,
        accounts=(Share("physics", 1530 * HOUR_S, 7, 485, 30),),
        jobs=(job,),
        ends=(Ends(Why.LEFT, 400, 4e6), Ends(Why.PREEMPTED, 30, 9e4)),
        done=(Done("grow", "hole_open", 485),),
        delays=(Delay("81", NOW, after(30), 0.0),),
        starts=212,
        ticks=Ticks(20_160, 0.11, 0.9, 110_000, 2),
        samples=tuple(sample(hour) for hour in range(168)),
    )
