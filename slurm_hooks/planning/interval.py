"""How soon the next tick comes, by what the last one cost. The loop asks this, and the replay."""

from __future__ import annotations

from typing import Optional

from slurm_hooks.settings.values import Tick

BUSY_THREADS = 64  # a quarter of those that slurmctld has (MAX_SERVER_THREADS, 22.05 to 26.05)


def pause_s(tick_s: float, threads: Optional[int], chosen: Tick) -> float:
    """Seconds from the start of a tick to the next, after one that took `tick_s`.

    `threads` are the requests that slurmctld answers at once; as long as nobody knows them, or they
    are many, ticks keep the interval that every site bears.
    """
    if threads is None or threads >= BUSY_THREADS:
        return chosen.every_s
    return min(max(tick_s / chosen.share, chosen.shortest_s), chosen.every_s)
