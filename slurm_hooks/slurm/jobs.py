"""Reads jobs from the rows of squeue's answer: ours, and other jobs as far as they matter."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple, Optional

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.model import (
    WAITING_STATES,
    Fragment,
    FragmentId,
    FragmentState,
    MalleableJob,
    Needs,
    OtherStart,
    PlannedStart,
    Request,
    Resources,
    Said,
    Slot,
    Waiter,
)
from slurm_hooks.model.resources import NO_RESOURCES
from slurm_hooks.protocol.comment import Comment, Loss, parse
from slurm_hooks.slurm.mark import MARK, parse_mark
from slurm_hooks.slurm.others import begun_in, recent, still_waiting, waiter_in
from slurm_hooks.slurm.rows import records_in, row_of
from slurm_hooks.slurm.strays import Strays
from slurm_hooks.slurm.telemetry import parse_progress, wish_in
from slurm_hooks.slurm.text import (
    expand,
    parse_gres,
    parse_limit,
    parse_memory,
    parse_time,
)

_OTHERS = re.compile(
    r"others=(\d{1,9})", re.ASCII
)  # records that matter to no plan: library_jobs.py
_BEGINS = re.compile(r"\s*(\d+)(?:[_+][^|\n]*)?\s*(?:\||\Z)", re.ASCII)
ANY = "any"
_ELEMENT = re.compile(r"(\d+)_(\d+)")


@dataclass(frozen=True)
class Jobs:
    """The answer of squeue. `malleable` are our jobs, `unknown` the lines that make no sense.
    `waiting` are other jobs that wait for a limit or that a fragment gave way to."""

    malleable: tuple[MalleableJob, ...]
    planned: tuple[PlannedStart, ...]
    unknown: tuple[str, ...]
    records: int = 0
    started: tuple[OtherStart, ...] = ()
    waiting: tuple[Waiter, ...] = ()


def parse_jobs(text: str, partitions: Collection[str]) -> Jobs:
    """Read the answer to jobs_command. `partitions` are the lanes."""
    ours = frozenset(partitions)
    fragments: dict[int, list[tuple[Fragment, Mapping[str, str]]]] = {}
    planned: list[PlannedStart] = []
    cut: set[str] = set()
    begun: list[tuple[datetime, str, str, str]] = []
    waiters: list[Waiter] = []
    strays = Strays(partitions)
    records, lines = records_in(text)
    counts = [int(others.group(1)) for others in map(_OTHERS.fullmatch, lines) if others]
    unknown = [_not_understood(line) for line in lines if not _OTHERS.fullmatch(line)]
    unread = Counter(map(_owner, lines))
    for line in records:
        try:
            read = (_read_again if MARK in line else _read)(line, ours)
        except (ValueError, NodeSetParseError) as error:
            element = line.partition("|")[0].strip()
            unknown.append(f"squeue: job {element} left alone: {error}")
            unread[_owner(line)] += 1
            continue
        if read is None:
            unknown.append(_not_understood(line))
            unread[_owner(line)] += 1
            continue
        row, fragment, start = read
        if fragment is None and row["State"] == "CANCELLED":
            cut.add(row["JobArrayID"].partition("_")[0])
        if fragment is None and strays.note(row):
            unread[_owner(line)] += 1
        if fragment is not None:
            fragments.setdefault(fragment.id.job_id, []).append((fragment, row))
        if start is not None:
            planned.append(start)
        is_ordinary = fragment is None or fragment.is_core
        if is_ordinary and row["NodeList"]:
            begun += begun_in(row)
        if is_ordinary and row["State"] == "PENDING":
            waiters += waiter_in(row, ours)
    jobs = []
    for job_id, rows in sorted(fragments.items()):
        try:
            job = _job(rows)
        except ValueError as error:
            unknown.append(f"squeue: job {job_id} left alone: {error}")
            continue
        name = str(job_id)
        jobs.append(replace(job, unread=unread[name] + unread[ANY], is_cut=name in cut))
    unknown += strays.lines({str(job.job_id): job.partition for job in jobs})
    starts = sorted(planned, key=lambda p: (p.start, p.job_id))
    waiting = still_waiting(waiters, jobs)
    count = len(records) + len(lines) - len(counts) + sum(counts)
    return Jobs(tuple(jobs), tuple(starts), tuple(unknown), count, recent(begun), waiting)


class _Read(NamedTuple):
    """The content of a record: a fragment of ours, or the planned start of a job or a core."""

    row: Mapping[str, str]
    fragment: Optional[Fragment]
    start: Optional[PlannedStart]


def _read(record: str, ours: frozenset[str]) -> Optional[_Read]:
    """Read a record of squeue, or None if it is not whole. Raises ValueError or
    NodeSetParseError."""
    row = row_of(record)
    if row is None:
        return None
    fragment = _fragment(row) if _may_be_ours(row, ours) else None
    is_planned = fragment is None or fragment.is_core
    return _Read(row, fragment, _planned(row, ours) if is_planned else None)


_read_again = lru_cache(maxsize=1 << 15)(_read)  # most were equal in the last tick


def _may_be_ours(row: Mapping[str, str], ours: frozenset[str]) -> bool:
    """True in our partitions, and for the core of a job whose other fragments are there."""
    is_there = row["Partition"] in ours
    return is_there or any(f",lane={name}," in row["admin_comment"] for name in ours)


def _owner(line: str) -> str:
    """Return the job to whose element a row belongs that is not understood: ANY if a row has lost
    its beginning, empty for a line that is no row."""
    if job := _BEGINS.match(line):
        return job[1]
    return ANY if "|" in line else ""


def _not_understood(line: str) -> str:
    return f"squeue: not a job line: {line[:120]!r}"


def _job(rows: list[tuple[Fragment, Mapping[str, str]]]) -> MalleableJob:
    fragments = tuple(sorted((f for f, _ in rows), key=lambda f: f.id))
    row = rows[0][1]
    return MalleableJob(
        job_id=fragments[0].id.job_id,
        user=row["UserName"],
        partition=fragments[0].mark.request.lane or row["Partition"],
        request=fragments[0].mark.request,
        fragments=fragments,
        submitted=parse_time(row["SubmitTime"]),
        needs=_needs(row, fragments[0].mark.request),
    )


def _needs(row: Mapping[str, str], request: Request) -> Needs:
    """Return the properties that a node must have. Slurm judges those that cannot be read. The
    needs of a fragment that counts slots depend on its slots."""
    features = "" if row["Feature"] in ("(null)", "N/A") else row["Feature"]
    if request.slot is not None:
        return Needs(features)
    memory, gres = parse_memory(row["MinMemory"]), parse_gres(row["tres-per-node"])
    return Needs(features, memory, _number(row["MinCPUs"]), gres)


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else 0


def _fragment(row: Mapping[str, str]) -> Optional[Fragment]:
    """Return the fragment in a row, or None for a job without our mark."""
    marked = parse_mark(row["admin_comment"])
    if marked is None:
        return None
    element = _ELEMENT.fullmatch(row["JobArrayID"])
    if not element and row["State"] == "CANCELLED":
        return None  # elements of a cancelled array that never ran: see parse_jobs
    if not element:
        raise ValueError("has our mark but is not an array element")
    mark, note = marked
    slot = mark.request.slot
    state = fragment_state(row["State"], row["PriorityLong"])
    restarts = int(row["restartcnt"] or 0)
    is_requeued = state in WAITING_STATES or (state in _REQUEUED and restarts > mark.run)
    run = restarts - is_requeued  # Slurm counts at the requeue, even while the run still ends
    comment = parse(row["comment"])
    loss = _loss_in(comment, run)
    return Fragment(
        id=FragmentId(int(element.group(1)), int(element.group(2))),
        state=state,
        mark=mark,
        nodes=expand(row["NodeList"] or (row["ReqNodes"] if _is_bound(state, row) else "")),
        start=parse_time(row["StartTime"]),
        end=parse_time(row["EndTime"]),
        eligible=parse_time(row["EligibleTime"]),
        limit=parse_limit(row["TimeLimit"]),
        restarts=restarts,
        exit_code=exit_code(row["exit_code"]),
        reason=row["Reason"],
        priority=int(row["PriorityLong"]) if row["PriorityLong"].isdecimal() else 0,
        said=said_in(comment, run),
        has_agent=comment.standing is not None,
        depends=row["Dependency"] not in ("", "(null)"),
        loss_s=float(loss.seconds) if loss else None,
        redoes=loss is not None and loss.redoes,
        telemetry=parse_progress(comment.progress),
        wish=wish_in(comment),
        note=note,
        is_tied=row["ReqNodes"] not in ("", "(null)"),
        asks=_asks(row, slot) if slot is not None else NO_RESOURCES,
        lane=row["Partition"],
    )


def _asks(row: Mapping[str, str], slot: Slot) -> Resources:
    """Return the resources that Slurm has given or will give the fragment on its node.

    Generic resources are the GPUs of a slot's kind. Only NumCPUs has the processors of a run. A
    waiting fragment gets the smaller of both columns: they differ only after a change by hand.
    """
    cpus = _number(row["NumCPUs"])
    cpus = cpus if row["NodeList"] else min(cpus, _number(row["MinCPUs"]))
    count = dict(parse_gres(_granted(row["tres-per-node"]))).get(slot.gres, 0)
    return Resources(cpus, parse_memory(row["MinMemory"]), slot.gpus(count))


def _granted(text: str) -> str:
    """Return only the words that Slurm obeys. For a request that it accepted and does not obey,
    Slurm (22.05) shows `gpu:4` in place of `gres:gpu:4`."""
    return ",".join(word for word in text.split(",") if word.startswith(("gres:", "gres/")))


_REQUEUED = (FragmentState.PENDING, FragmentState.ENDING)  # or released, or at a normal end


def _is_bound(state: FragmentState, row: Mapping[str, str]) -> bool:
    """True if the fragment is, or was, about to run on the nodes asked for."""
    is_on_its_way = state in (FragmentState.PENDING, FragmentState.SPECIAL)
    return is_on_its_way or row["Reason"] == "BadConstraints"


def said_in(comment: Comment, run: int) -> Said:
    """Return the state of the run with this restart count, as the fragment's agent reports it."""
    is_this_run = comment.standing is not None and comment.run == run
    return Said(comment.standing) if is_this_run else Said.NOTHING


def _loss_in(comment: Comment, run: int) -> Optional[Loss]:
    """Return the work that an interruption costs, as the agent reports it in this run, if at
    all."""
    return comment.loss if comment.run == run else None


@lru_cache(maxsize=256)
def exit_code(text: str) -> str:
    """Return code and signal as `7:0`. squeue (22.05) prints the wait status, here 1792."""
    is_status = re.fullmatch(r"\d{1,9}", text, re.ASCII)
    return f"{int(text) >> 8}:{int(text) & 0x7F}" if is_status else text


def _planned(row: Mapping[str, str], ours: frozenset[str]) -> Optional[PlannedStart]:
    start, nodes = parse_time(row["StartTime"]), expand(row["SchedNodes"])
    if row["State"] != "PENDING" or start is None or not nodes:
        return None
    preempts = ours.isdisjoint(row["Partition"].split(","))
    return PlannedStart(row["JobArrayID"], start, nodes, preempts)


_STATES = {
    "RUNNING": FragmentState.RUNNING,
    "CONFIGURING": FragmentState.RUNNING,
    "COMPLETING": FragmentState.ENDING,
    "STAGE_OUT": FragmentState.ENDING,
    "COMPLETED": FragmentState.DONE,
    "TIMEOUT": FragmentState.TIMED_OUT,
    "CANCELLED": FragmentState.CANCELLED,
    "FAILED": FragmentState.FAILED,
    "NODE_FAIL": FragmentState.LOST,
    "BOOT_FAIL": FragmentState.LOST,
    "OUT_OF_MEMORY": FragmentState.FAILED,
    "DEADLINE": FragmentState.CANCELLED,  # as the user wished
    "PREEMPTED": FragmentState.TIMED_OUT,
    "SUSPENDED": FragmentState.SUSPENDED,
    "REQUEUE_HOLD": FragmentState.HELD,
    "SPECIAL_EXIT": FragmentState.SPECIAL,
}


def fragment_state(state: str, priority: str) -> FragmentState:
    """Fold Slurm's job state into a fragment's. A pending job of priority 0 is held."""
    if state in ("PENDING", "REQUEUED"):
        return FragmentState.HELD if priority == "0" else FragmentState.PENDING
    return _STATES.get(state, FragmentState.UNKNOWN)
