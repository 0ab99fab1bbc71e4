"""Counts the recorded starts of other jobs that fragments would have held up. Pure.

A start finds a fragment on its nodes if the planner did not know it in time. Slurm then preempts
the fragment, and the job waits until its agent has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.replay.record import Record
from slurm_hooks.settings.values import Lease

SIZES = (1, 4, 16, 64)
"""Nodes of the largest start of each row. The last row has all larger starts."""


@dataclass(frozen=True)
class Starts:
    """The starts on `least` to `most` nodes, by the cause for which some are held up.

    A `planned` start was known before. The other starts came at once. `most` is None without a
    bound.
    """

    least: int
    most: Optional[int]
    starts: int
    planned: int
    at_once: int


def starts_by_size(record: Record, lost: Iterable[tuple[float, int]]) -> tuple[Starts, ...]:
    """Return a row for each size that starts. `lost` are times and nodes of fragments that lost
    their nodes. All starts at the same moment count as a single job.
    """
    nodes: dict[float, set[int]] = {}
    known: set[float] = set()
    for interval in record.intervals:
        if interval.end_s < record.to_s:
            nodes.setdefault(interval.end_s, set()).add(interval.node)
            known |= {interval.end_s} if interval.known_s < interval.end_s else set()
    late = {at for at, node in lost if node in nodes.get(at, ())}
    rows = []
    for least, most in zip((1, *(size + 1 for size in SIZES)), (*SIZES, None)):
        mine = {at for at, ours in nodes.items() if least <= len(ours) <= (most or len(ours))}
        held = mine & late
        rows.append(Starts(least, most, len(mine), len(held & known), len(held - known)))
    return tuple(row for row in rows if row.starts)


def wait_s(lease: Lease, kill_wait_s: float) -> tuple[float, float]:
    """Return the seconds that a start usually waits, and the most that it can wait.

    An agent ends at SIGTERM after the farewell. Slurm kills after KillWait, and before it passes
    the grace of the lane, which a longer notice than the default stands for.
    """
    grace_s = lease.notice_s if lease.notice_s > Lease().notice_s else 0
    return lease.farewell_s, kill_wait_s + grace_s
