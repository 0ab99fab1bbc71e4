"""Read the jobs of each node from the accounting of the site's own cluster.

The input is `sacct --allusers --allocations --parsable2 --truncate --starttime=A --endtime=B
--format=JobIDRaw,Submit,Start,End,NodeList,AllocTRES`, best with SLURM_TIME_FORMAT=%s in the
environment (then a change of the clock in spring does no harm). Other columns are ignored. Without
AllocTRES a node is only known to have a job or not. Accounting does not record nodes that were down
or reserved: they look idle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Optional

from ClusterShell.NodeSet import NodeSet, NodeSetException

from slurm_hooks.errors import UsageError
from slurm_hooks.model.moments import plural
from slurm_hooks.model.resources import NO_RESOURCES, Resources
from slurm_hooks.replay.logs.log_lines import BadLine, BadLog, Log
from slurm_hooks.replay.logs.machine import read_sizes
from slurm_hooks.replay.logs.tres import parse_tres, spread
from slurm_hooks.replay.record import Interval, Record, Use
from slurm_hooks.slurm.text import expand

COLUMNS = ("JobIDRaw", "Submit", "Start", "End", "NodeList")
TRES = "AllocTRES"
NEVER = ("Unknown", "None", "")
NO_NODES = ("None assigned", "")
EARLY_TIME, EARLY_JOBS = 0.1, 0.02  # fewer than these jobs start in this first part: no whole log


@dataclass(frozen=True)
class Stay:
    """An ordinary job on named nodes. Times are seconds since 1970.

    `taken` are its resources on all its nodes together, None if the accounting lacks them.
    """

    submit_s: float
    start_s: float
    end_s: float  # infinite: still running
    nodes: tuple[str, ...]
    taken: Optional[Resources] = None


def read_sacct(log: Log, machine: str = "") -> Record:
    """The holes between the jobs of the accounting. Raises BadLog, UsageError.

    `machine` is a folded list of all nodes, or a file of them. Without it the machine is every node
    that had a job.
    """
    sizes = read_sizes(machine)
    stays = _stays(log)
    names = {name for stay in stays for name in stay.nodes}
    if machine:
        names = set(sizes) or _machine(machine)
    if not names or not stays:
        raise BadLog(f"{log.path}: no job that ran on a node")
    order = list(NodeSet.fromlist(sorted(names)))
    start = min(stay.start_s for stay in stays)
    end = max(max((s.end_s for s in stays if s.end_s < math.inf), default=0.0), start + 1.0)
    busy: dict[str, list[Stay]] = {name: [] for name in order}
    for stay in stays:
        for name in stay.nodes:
            if name in busy:
                busy[name].append(stay)
    if not any(busy.values()):
        raise BadLog(f"{log.path}: no job ran on any node of --nodes {machine}")
    holes = [
        hole
        for at, name in enumerate(order)
        for hole in _holes(at, sorted(busy[name], key=lambda s: s.start_s), (start, end))
    ]
    holes.sort(key=lambda i: (i.start_s, i.node))
    return Record(
        tuple(holes),
        len(order),
        0.0,
        end - start,
        log.skipped,
        _notes(stays),
        _uses(order, stays),
        tuple(sizes[name] for name in order) if sizes else (),
        quiet_until_s=_quiet_until_s(sorted(stay.start_s - start for stay in stays), end - start),
    )


def _quiet_until_s(starts_s: Sequence[float], window_s: float) -> float:
    """Return when the jobs of the log begin to start, or 0 if they do from the beginning.

    Without --truncate sacct gives the true start of jobs that ran when its window began. A single
    old job then makes the log many times as long as the time that sacct was asked for.
    """
    first = int(EARLY_JOBS * len(starts_s))
    return starts_s[first] if starts_s[first] > EARLY_TIME * window_s else 0.0


def _notes(stays: Sequence[Stay]) -> tuple[str, ...]:
    down = "nodes that were down, drained or reserved look idle in the accounting"
    silent = sum(stay.taken is None for stay in stays)
    if silent == len(stays):
        more = f"give sacct {TRES} in --format too, to see the idle GPUs and CPUs of used nodes"
    elif silent:
        more = f"{TRES} is empty for {plural(silent, 'job')}, which count as if they used nothing"
    else:
        return (down,)
    return (down, more)


def _uses(order: Sequence[str], stays: Sequence[Stay]) -> tuple[Use, ...]:
    """The resources of jobs on each node, since the first start, empty if the log lacks them."""
    if all(stay.taken is None for stay in stays):
        return ()
    places = {name: at for at, name in enumerate(order)}
    first = min(stay.start_s for stay in stays)
    return tuple(
        Use(places[name], stay.start_s - first, stay.end_s - first, part)
        for stay in stays
        for name, part in zip(stay.nodes, spread(stay.taken or NO_RESOURCES, len(stay.nodes)))
        if name in places
    )


def _machine(folded: str) -> set[str]:
    try:
        return set(_expanded(folded))
    except BadLine as error:
        raise UsageError(f"--nodes: {error}") from error


def _holes(at: int, stays: Sequence[Stay], window: tuple[float, float]) -> list[Interval]:
    """The rest of the window on a node, whose jobs may share it."""
    start, end = window
    holes, since = [], start
    for stay in stays:
        if stay.start_s > since:
            known = stay.submit_s - start if stay.submit_s < stay.start_s else math.inf
            holes.append(Interval(at, since - start, min(stay.start_s, end) - start, known))
        since = max(since, stay.end_s)
    if since < end:
        holes.append(Interval(at, since - start, end - start))
    return holes


def _stays(log: Log) -> list[Stay]:
    columns: dict[str, int] = {}
    stays = []
    for number, text in log.lines():
        fields = text.split("|")
        if not columns:
            columns = _columns(log, fields)
            continue
        if _is_step(fields, columns):
            continue  # a step; its job has a line of its own
        for stay in log.parsed(number, text, partial(_stay, columns)):
            if stay.nodes:
                stays.append(stay)
    return stays


def _is_step(fields: Sequence[str], columns: dict[str, int]) -> bool:
    at = columns["JobIDRaw"]
    return at < len(fields) and "." in fields[at]


def _columns(log: Log, header: Sequence[str]) -> dict[str, int]:
    at = {name: position for position, name in enumerate(header)}
    if "JobID" in at:
        at.setdefault("JobIDRaw", at["JobID"])
    missing = [name for name in COLUMNS if name not in at]
    if missing:
        raise BadLog(
            f"{log.path}, line 1: no column {', '.join(missing)}; ask sacct for --parsable2 "
            f"--format={','.join((*COLUMNS, TRES))}"
        )
    return at


def _stay(columns: dict[str, int], text: str) -> Stay:
    fields = text.split("|")
    if len(fields) <= max(columns.values()):
        raise BadLine(f"{len(fields)} fields, the header has {max(columns.values()) + 1}")
    start_text, node_list = fields[columns["Start"]], fields[columns["NodeList"]]
    if start_text in NEVER or node_list in NO_NODES:
        return Stay(0.0, 0.0, 0.0, ())
    start = _time(start_text)
    end_text = fields[columns["End"]]
    end = math.inf if end_text in NEVER else _time(end_text)
    if end < start:
        raise BadLine(f"ends at {end_text}, before its start at {start_text}")
    submit_text = fields[columns["Submit"]]
    submit = start if submit_text in NEVER else _time(submit_text)
    nodes = tuple(sorted(_expanded(node_list))) if end > start else ()
    tres = fields[columns[TRES]] if TRES in columns else ""
    return Stay(submit, start, end, nodes, parse_tres(tres) if tres else None)


def _expanded(folded: str) -> frozenset[str]:
    try:
        return expand(folded)
    except NodeSetException as error:
        raise BadLine(f"node list {folded[:80]!r}: {error}") from error


def _time(text: str) -> float:
    """Seconds since 1970 from epoch seconds or from Slurm's own format, taken as UTC."""
    if text.isascii() and text.isdigit() and len(text) <= 12:
        return float(text)
    try:
        return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        raise BadLine(f"{text!r} is not a time (epoch seconds or YYYY-MM-DDTHH:MM:SS)") from None
