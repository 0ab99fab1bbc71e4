"""Rigid jobs, and the standard workload format in which archives keep them.

The format has eighteen fields and `;` comments (Feitelson and others, Parallel Workloads Archive).
Processors count as nodes: convert a log in cores first. In a window cut from a longer log, field 15
has these values. 1: submitted and started within. 2: queued at time 0. 3: running at time 0, with
the remaining request and run time. 4: started after the window's end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_hooks.replay.logs.log_lines import BadLine, BadLog, Log, seconds, whole

FIELDS = 18
RUNNING_AT_START = 3


@dataclass(frozen=True)
class RigidJob:
    """An ordinary job. Times are in seconds. `start_s` is its start in the log.

    `is_running` is true if it already ran when the log begins.
    """

    number: int
    submit_s: float
    start_s: float
    run_s: float
    request_s: float
    nodes: int
    is_running: bool = False

    @property
    def end_s(self) -> float:
        """Its end in the log."""
        return self.start_s + self.run_s


@dataclass(frozen=True)
class Workload:
    """Jobs in the order of the log, the machine's nodes, and the length of the log in seconds."""

    jobs: tuple[RigidJob, ...]
    nodes: int
    window_s: float


def read_swf(log: Log) -> Workload:
    """The jobs of a log. Raises BadLog, UsageError.

    Jobs that never ran (run time or nodes unknown or zero) are left out, and are not bad lines.
    """
    header: dict[str, str] = {}
    jobs: list[RigidJob] = []
    for number, text in log.lines():
        if text.lstrip().startswith(";"):
            _comment(text, header)
            continue
        for job in log.parsed(number, text, _job):
            if job.run_s > 0 and job.nodes > 0 and job.start_s >= 0:
                jobs.append(job)
    if not jobs:
        raise BadLog(f"{log.path}: no job that ran")
    declared = header.get("MaxNodes") or header.get("MaxProcs")
    nodes = int(declared or 0) or max(job.nodes for job in jobs)
    window = header.get("window")
    return Workload(tuple(jobs), nodes, float(window) if window else _last_submit(jobs))


def _last_submit(jobs: list[RigidJob]) -> float:
    """The end without a window: the last submission. Afterwards the machine only drains."""
    return max([1.0, *(job.submit_s for job in jobs)])


def _comment(text: str, header: dict[str, str]) -> None:
    size = re.match(r"\s*;\s*(MaxNodes|MaxProcs):\s*([0-9]{1,9})\b", text)
    if size:
        header[size.group(1)] = size.group(2)
    window = re.search(r"\(window 0 \.\. ([0-9]{1,12}) s\)", text)
    if window:
        header["window"] = window.group(1)


def _job(text: str) -> RigidJob:
    fields = text.split()
    if len(fields) != FIELDS:
        raise BadLine(f"{len(fields)} fields, a job has {FIELDS}")
    submit = seconds(fields[1], "submit time (field 2)")
    wait = seconds(fields[2], "wait time (field 3)")
    run = seconds(fields[3], "run time (field 4)")
    used = whole(fields[4], "processors (field 5)")
    asked = whole(fields[7], "requested processors (field 8)")
    request = seconds(fields[8], "requested time (field 9)")
    if submit < 0:
        raise BadLine(f"submit time {submit:g} (field 2) is negative")
    return RigidJob(
        number=whole(fields[0], "job number (field 1)"),
        submit_s=submit,
        start_s=submit + wait if wait >= 0 else -1.0,
        run_s=run,
        request_s=request if request > 0 else run,
        nodes=used if used > 0 else asked,
        is_running=whole(fields[14], "queue (field 15)") == RUNNING_AT_START,
    )
