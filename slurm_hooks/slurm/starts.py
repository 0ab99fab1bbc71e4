"""When other people's jobs began, as far as that is recent: what delays are measured by."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import datetime, timedelta

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.model import OtherStart
from slurm_hooks.slurm.text import expand, parse_time

RECENT = timedelta(minutes=15)


def begun_in(row: Mapping[str, str]) -> list[tuple[datetime, str, str, str]]:
    """When somebody's job began, its id, its nodes as text, its partition; nothing if it has not
    begun."""
    with contextlib.suppress(ValueError):
        start = parse_time(row["StartTime"])
        if start is not None and row["State"] not in ("PENDING", "CANCELLED"):
            return [(start, row["JobArrayID"], row["NodeList"], row["Partition"])]
    return []


def recent(begun: list[tuple[datetime, str, str, str]]) -> tuple[OtherStart, ...]:
    """Those not long before the last: host lists of all jobs would take too long to read."""
    last = max((start for start, *_ in begun), default=None)
    found = []
    for start, job_id, names, partition in sorted(begun):
        if last is not None and last - start <= RECENT:
            with contextlib.suppress(NodeSetParseError):
                found.append(OtherStart(job_id, start, expand(names), partition))
    return tuple(found)
