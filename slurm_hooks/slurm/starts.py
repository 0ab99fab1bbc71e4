"""Recent starts of other jobs, from which delays are measured."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import datetime, timedelta

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.model import OtherStart
from slurm_hooks.slurm.text import expand, parse_time

RECENT = timedelta(minutes=15)


def begun_in(row: Mapping[str, str]) -> list[tuple[datetime, str, str, str]]:
    """Return a job's start, its id, its nodes as text and its partition, or an empty list before
    its start."""
    with contextlib.suppress(ValueError):
        start = parse_time(row["StartTime"])
        if start is not None and row["State"] not in ("PENDING", "CANCELLED"):
            return [(start, row["JobArrayID"], row["NodeList"], row["Partition"])]
    return []


def recent(begun: list[tuple[datetime, str, str, str]]) -> tuple[OtherStart, ...]:
    """Return the starts not long before the last. Host lists of all jobs would take too long."""
    last = max((start for start, *_ in begun), default=None)
    starts = []
    for start, job_id, names, partition in sorted(begun):
        if last is not None and last - start <= RECENT:
            with contextlib.suppress(NodeSetParseError):
                starts.append(OtherStart(job_id, start, expand(names), partition))
    return tuple(starts)
