"""Sets how soon the next tick comes, by the cost of the last. The loop and the replay use it."""

from __future__ import annotations

from typing import Optional

from slurm_hooks.settings.values import Tick

BUSY_THREADS = 64  # a quarter of slurmctld's (MAX_SERVER_THREADS, 22.05 to 26.05)


def gap_s(tick_s: float, threads: Optional[int], chosen: Tick) -> float:
    """Seconds from the start of a tick that took `tick_s` to the start of the next.

    slurmctld answers `threads` requests at once. While that number is unknown or large, ticks keep
    the interval that every site bears.
    """
    if threads is None or threads >= BUSY_THREADS:
        return chosen.every_s
    return min(max(tick_s / chosen.share, chosen.shortest_s), chosen.every_s)
