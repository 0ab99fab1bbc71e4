"""The question to squeue and how to read its answer. Must not run anything.

Every word that a user controls (job names, comments) is kept out of the question, so that nobody
can forge a row of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Optional

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.model import Fragment, FragmentId, FragmentState, MalleableJob, PlannedStart
from slurm_hooks.slurm.mark import parse_mark
from slurm_hooks.slurm.text import Command, expand, parse_limit, parse_time

JOB_FIELDS = (
    "JobArrayID",
    "State",
    "PriorityLong",
    "Partition",
    "UserName",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "restartcnt",
    "exit_code",
    "Reason",
    "NodeList",
    "ReqNodes",
    "SchedNodes",
    "admin_comment",  # last: only this one is free text, written by operators
)


def jobs_command() -> Command:
    """Every job that slurmctld knows, ended ones too, one array element a line.

    Without --array squeue (22.05) folds held elements into one line even where they differ.
    """
    fields = ",".join(f"{name}:|" for name in JOB_FIELDS)
    return Command(("squeue", "--noheader", "--all", "--array", "--states=all", f"-O{fields}"))


@dataclass(frozen=True)
class Jobs:
    """What squeue said: our jobs, others' planned starts, lines nobody understood."""

    malleable: tuple[MalleableJob, ...]
    planned: tuple[PlannedStart, ...]
    unknown: tuple[str, ...]


def parse_jobs(text: str, partitions: Iterable[str]) -> Jobs:
    """Read the answer to jobs_command; `partitions` are those of malleable jobs."""
    ours = frozenset(partitions)
    fragments: dict[int, list[tuple[Fragment, dict[str, str]]]] = {}
    planned: list[PlannedStart] = []
    unknown: list[str] = []
    for line in text.splitlines():
        row = _row(line)
        if row is None:
            unknown.append(f"squeue: not a job line: {line[:120]!r}")
            continue
        try:
            fragment = _fragment(row) if row["Partition"] in ours else None
            start = _planned(row) if fragment is None else None
        except (ValueError, NodeSetParseError) as error:
            unknown.append(f"squeue: job {row['JobArrayID']} left alone: {error}")
            continue
        if fragment is not None:
            fragments.setdefault(fragment.id.job_id, []).append((fragment, row))
        if start is not None:
            planned.append(start)
    jobs = (_job(rows) for _, rows in sorted(fragments.items()))
    return Jobs(
        tuple(jobs), tuple(sorted(planned, key=lambda p: (p.start, p.job_id))), tuple(unknown)
    )


def _row(line: str) -> Optional[dict[str, str]]:
    parts = line.split("|", len(JOB_FIELDS) - 1)
    if len(parts) != len(JOB_FIELDS) or not re.match(r"\d+", parts[0]):
        return None
    parts[-1] = parts[-1][:-1] if parts[-1].endswith("|") else parts[-1]
    return dict(zip(JOB_FIELDS, (part.strip() for part in parts)))


def _job(rows: list[tuple[Fragment, dict[str, str]]]) -> MalleableJob:
    fragments = tuple(sorted((f for f, _ in rows), key=lambda f: f.id))
    row = rows[0][1]
    return MalleableJob(
        job_id=fragments[0].id.job_id,
        user=row["UserName"],
        partition=row["Partition"],
        request=fragments[0].mark.request,
        fragments=fragments,
        submitted=parse_time(row["SubmitTime"]),
        priority=max(int(r["PriorityLong"]) if r["PriorityLong"].isdigit() else 0 for _, r in rows),
    )


def _fragment(row: Mapping[str, str]) -> Optional[Fragment]:
    """The fragment in a row; None for a job without our mark."""
    found = parse_mark(row["admin_comment"])
    if found is None:
        return None
    element = re.fullmatch(r"(\d+)_(\d+)", row["JobArrayID"])
    if not element:
        raise ValueError("carries our mark but is no array element")
    mark, note = found
    state = fragment_state(row["State"], row["PriorityLong"])
    named = row["NodeList"] or (row["ReqNodes"] if state is FragmentState.PENDING else "")
    return Fragment(
        id=FragmentId(int(element.group(1)), int(element.group(2))),
        state=state,
        mark=mark,
        nodes=expand(named),
        start=parse_time(row["StartTime"]),
        end=parse_time(row["EndTime"]),
        eligible=parse_time(row["EligibleTime"]),
        limit=parse_limit(row["TimeLimit"]),
        restarts=int(row["restartcnt"] or 0),
        exit_code=exit_code(row["exit_code"]),
        reason=row["Reason"],
        note=note,
    )


def exit_code(text: str) -> str:
    """Code and signal as `7:0`; squeue (22.05) prints the wait status, here 1792."""
    return f"{int(text) >> 8}:{int(text) & 0x7F}" if text.isdigit() else text


def _planned(row: Mapping[str, str]) -> Optional[PlannedStart]:
    start, nodes = parse_time(row["StartTime"]), expand(row["SchedNodes"])
    if row["State"] != "PENDING" or start is None or not nodes:
        return None
    return PlannedStart(row["JobArrayID"], start, nodes)


_STATES = {
    "RUNNING": FragmentState.RUNNING,
    "CONFIGURING": FragmentState.RUNNING,
    "COMPLETING": FragmentState.ENDING,
    "STAGE_OUT": FragmentState.ENDING,
    "COMPLETED": FragmentState.DONE,
    "TIMEOUT": FragmentState.TIMED_OUT,
    "CANCELLED": FragmentState.CANCELLED,
    "FAILED": FragmentState.FAILED,
    "NODE_FAIL": FragmentState.FAILED,
    "BOOT_FAIL": FragmentState.FAILED,
    "OUT_OF_MEMORY": FragmentState.FAILED,
    "DEADLINE": FragmentState.FAILED,
    "PREEMPTED": FragmentState.FAILED,
    "REQUEUE_HOLD": FragmentState.HELD,
    "SPECIAL_EXIT": FragmentState.HELD,
}


def fragment_state(state: str, priority: str) -> FragmentState:
    """Fold Slurm's job state; a pending job of priority 0 is held."""
    if state in ("PENDING", "REQUEUED"):
        return FragmentState.HELD if priority == "0" else FragmentState.PENDING
    return _STATES.get(state, FragmentState.UNKNOWN)
