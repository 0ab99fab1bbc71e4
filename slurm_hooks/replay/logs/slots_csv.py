"""Idle slots of nodes, say GPUs, as a table: `node,slot,idle_from_s,idle_to_s`.

Slots of a node are equal, and counted from 0. The highest slot in the file gives the number of
slots of all nodes. The record ends with its last interval.
"""

from __future__ import annotations

from slurm_hooks.model.moments import plural
from slurm_hooks.replay.logs.log_lines import BadLine, BadLog, Log, seconds, whole
from slurm_hooks.replay.record import Interval, Record

HEADER = "node,slot,idle_from_s,idle_to_s"
MOST_SLOTS = 1024


def read_slots(log: Log) -> Record:
    """The record in the file. Raises BadLog, UsageError.

    An interval that overlaps the previous interval of its slot is a bad line.
    """
    numbers: dict[str, int] = {}
    intervals: list[Interval] = []
    last_end: dict[tuple[str, int], float] = {}
    for number, text in log.lines():
        if text.startswith("#") or text.replace(" ", "") == HEADER:
            continue
        for name, slot, start, end in log.parsed(number, text, _slot):
            if start < last_end.get((name, slot), 0.0):
                log.bad(number, f"slot {slot} of {name} is idle already at {start:g}")
                continue
            last_end[name, slot] = end
            node = numbers.setdefault(name, len(numbers))
            intervals.append(Interval(node, start, end))
    if not intervals:
        raise BadLog(f"{log.path}: no idle interval")
    slots = 1 + max(slot for _, slot in last_end)
    notes = (f"each node has {slots} slots, as the highest slot of the log says",)
    end_s = max(last_end.values())
    ordered = tuple(sorted(intervals, key=lambda i: (i.start_s, i.node)))
    return Record(ordered, len(numbers), 0.0, end_s, log.skipped, notes, slots=slots)


def _slot(text: str) -> tuple[str, int, float, float]:
    fields = text.split(",")
    if len(fields) != 4:
        raise BadLine(f"{plural(len(fields), 'field')}, expected {HEADER}")
    slot = whole(fields[1], "slot")
    start, end = seconds(fields[2], "idle_from_s"), seconds(fields[3], "idle_to_s")
    if not 0 <= slot < MOST_SLOTS:
        raise BadLine(f"slot {slot} is not one of 0 to {MOST_SLOTS - 1}")
    if not 0 <= start < end:
        raise BadLine(f"idle from {start:g} to {end:g} is not an interval")
    return fields[0].strip(), slot, start, end
