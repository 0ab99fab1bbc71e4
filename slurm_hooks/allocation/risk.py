"""What a job risks with nodes that it gains: the work of all its nodes since the last checkpoint.

Nodes that have just become free are the likeliest to go again: on three recorded machines, those
free for less than five minutes went two to six times as often as the average. So who trains pays
for newcomers, once however many they are, since what comes together mostly goes together. Jobs
whose hits are dear grow seldom and by much; volatile nodes are left to those whose hits are free.
"""

from __future__ import annotations

import math
from dataclasses import replace

from slurm_hooks.allocation.problem import JobAsk

WINDOW_S = 900.0
"""How far back nodes that went are counted."""

MOST_SHARE = 0.5
"""The charge is at most this part of the look-ahead: a job may always double."""


def stay_s(open_nodes: int, taken_nodes: int) -> float:
    """How long a node stays, in seconds, where so many are open and so many went in `WINDOW_S`; to
    a power of two, since nobody knows it better. Infinite if none went."""
    if not taken_nodes:
        return math.inf
    mean_s: float = max(open_nodes, 1) * WINDOW_S / taken_nodes
    return float(2 ** round(math.log2(mean_s)))


def newcomer_s(hit_s: float, horizon_s: float, mean_stay_s: float) -> float:
    """Seconds of its progress that a job must expect to lose to newcomers within the look-ahead.

    Half of `hit_s` on average, by nodes that go twice as often as those that stay `mean_stay_s`.
    """
    lost_s = hit_s * -math.expm1(-horizon_s / mean_stay_s)
    return min(lost_s, MOST_SHARE * horizon_s)


def at_risk(job: JobAsk, charge_s: float) -> JobAsk:
    """The job with the charge for newcomers on its growth."""
    return replace(job, grow_s=job.grow_s + charge_s) if charge_s else job
