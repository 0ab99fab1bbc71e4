"""Idle intervals as a table: `node,column,idle_from_s,idle_to_s`.

`column` numbers the nodes, and a range of columns selects some of them. A first comment line may
give `duration_s=N`, the length of the record. Otherwise the record ends with its last interval.
"""

from __future__ import annotations

import re
from typing import Optional

from slurm_hooks.model.moments import plural
from slurm_hooks.replay.logs.log_lines import BadLine, BadLog, Log, seconds, whole
from slurm_hooks.replay.record import Interval, Record

HEADER = "node,column,idle_from_s,idle_to_s"


def read_idle(log: Log, columns: Optional[tuple[int, int]] = None) -> Record:
    """The record in the file, of columns `columns` (first, last) only. Raises BadLog, UsageError.

    An interval that overlaps the previous interval of its node is a bad line.
    """
    intervals: list[Interval] = []
    last_end: dict[int, float] = {}
    duration = 0.0
    for number, text in log.lines():
        if text.startswith("#"):
            duration = max(duration, _duration(text))
            continue
        if text.replace(" ", "") == HEADER:
            continue
        for interval in log.parsed(number, text, _interval):
            if columns and not columns[0] <= interval.node <= columns[1]:
                continue
            if interval.start_s < last_end.get(interval.node, 0.0):
                log.bad(number, f"column {interval.node} is idle already at {interval.start_s:g}")
                continue
            last_end[interval.node] = interval.end_s
            intervals.append(interval)
    if not intervals:
        raise BadLog(f"{log.path}: no idle interval{' in these columns' if columns else ''}")
    end = max(duration, *last_end.values())
    nodes = columns[1] - columns[0] + 1 if columns else len(last_end)
    return Record(tuple(intervals), nodes, 0.0, end, log.skipped)


def _duration(comment: str) -> float:
    match = re.search(r"\bduration_s=([0-9]{1,12})\b", comment)
    return float(match.group(1)) if match else 0.0


def _interval(text: str) -> Interval:
    fields = text.split(",")
    if len(fields) != 4:
        raise BadLine(f"{plural(len(fields), 'field')}, expected {HEADER}")
    column = whole(fields[1], "column")
    start, end = seconds(fields[2], "idle_from_s"), seconds(fields[3], "idle_to_s")
    if column < 0:
        raise BadLine(f"column {column} is negative")
    if not 0 <= start < end:
        raise BadLine(f"idle from {start:g} to {end:g} is not an interval")
    return Interval(column, start, end)
