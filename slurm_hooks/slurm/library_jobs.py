"""A program that answers the gateway's question about jobs as squeue would, from libslurm.

    python -I library_jobs.py

It is a separate process because a library call cannot have a time limit. Memory that libslurm leaks
or corrupts also ends with the process. It imports pyslurm and no module of ours. Records that
matter are written in full: records with a mark, planned and recent starts, cancelled jobs, and jobs
that wait for a limit or are named in a mark. Other records are counted. If pyslurm (25.11.2) loses
a detail that squeue prints, the program ends with UNSURE, and the caller asks squeue.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Optional

UNSURE = 3
SAID_WIDTH = 145  # as in rows.py, like RECORD_END
RECORD_END = "|" + "=" * (SAID_WIDTH + 1)
RECENT_S = 900  # as in others.py
MARK = "malleable{"
_NAMED = re.compile(r"malleable\{(?:[^{}]*,)?for=([0-9_+]+)")
_LIMIT = re.compile(r"Assoc|QOS|Max.*Per")


class Unsure(Exception):
    """Raised if pyslurm cannot give squeue's answer."""


def answer(jobs: Iterable[Any]) -> Iterator[str]:
    """Yield the lines of an answer to jobs_command() from pyslurm's jobs. The last has a count.

    Raises Unsure.
    """
    others = 0
    records = list(jobs)
    last = max((job.start_time for job in records if _has_begun(job)), default=0)
    named = {name for job in records for name in _NAMED.findall(_words(job.admin_comment))}
    for job in records:
        names = element_names(job)
        if not (_matters(job, last) or _waits(job, names, named)):
            others += len(names)
            continue
        rest = _rest(job)
        yield from (f"{name}|{rest}" for name in names)
    yield f"others={others}"


def _has_begun(job: Any) -> bool:
    return bool(job.start_time) and job.state not in ("PENDING", "CANCELLED")


def _matters(job: Any, last: int) -> bool:
    """Tell whether the record matters. `last` is the latest start of all jobs. Starts shortly
    before it matter."""
    state = job.state
    if _has_begun(job) and last - job.start_time <= RECENT_S:
        return True
    if state == "PENDING" and job.start_time and job.scheduled_nodes:
        return True
    return state == "CANCELLED" or MARK in _words(job.admin_comment)


def _waits(job: Any, names: Iterable[str], named: set[str]) -> bool:
    """Tell whether a job waits for a limit, or any of its elements, `names`, is `named` in a
    mark."""
    if job.state != "PENDING":
        return False
    return bool(_LIMIT.match(job.state_reason or "")) or not named.isdisjoint(names)


def element_names(job: Any) -> list[str]:
    """Return the names that squeue --array prints for a record: a job, an element, or elements
    that still share a record."""
    array, waiting = job.array_id, job.array_tasks_waiting
    if not array:
        return [f"{job.id}"]
    if not waiting:
        return [f"{array}_{job.array_task_id or 0}"]
    return [f"{array}_{index}" for part in waiting.split(",") for index in _range(part)]


def _range(text: str) -> range:
    """`7`, `3-9` or `0-8:2`. Raises Unsure for anything else."""
    span, _, step = text.partition(":")
    first, _, last = span.partition("-")
    try:
        return range(int(first), int(last or first) + 1, int(step or 1))
    except ValueError as error:
        raise Unsure(f"elements {text!r} of an array") from error


def _rest(job: Any) -> str:
    """Return a line from its second field on."""
    state = job.state
    fields = (
        state,
        job.priority or 0,
        job.partition,
        job.user_name,
        job.submit_time,
        job.eligible_time,
        job.start_time,
        job.end_time,
        _limit(job.time_limit),
        job.requeue_count or 0,
        exit_code(job, state)
        if MARK in _words(job.admin_comment)
        else "0:0",  # exit codes of other jobs are not read
        job.state_reason or "None",  # pyslurm turns the word None into an empty value
        job.allocated_nodes,
        job.required_nodes,
        job.scheduled_nodes,
        "yes" if job.dependencies else "",
        f"{job.memory_per_node or job.memory_per_cpu or 0}M",
        job.min_cpus_per_node or 0,
        job.cpus or 0,
        _gres(job),
        ",".join(job.constraints),
    )
    if any("|" in str(word) or "\n" in str(word) for word in fields[:-1]):
        raise Unsure(f"job {job.id}: a separator in a field")
    plain = "|".join("" if word is None else str(word) for word in fields)
    return f"{plain}|;|{_line(_words(job.admin_comment))}|{_said(job)}{RECORD_END}"


def _limit(minutes: Optional[int]) -> str:
    return "UNLIMITED" if minutes is None else f"{minutes}:00"


def exit_code(job: Any, state: str) -> str:
    """Return code and signal. Raises Unsure: pyslurm says 9 for 137, and 0 for 128."""
    code, signal = job.exit_code, job.exit_code_signal
    if not signal and (code or state == "FAILED"):
        raise Unsure(f"job {job.id}: an exit code of {code} or {code + 128}")
    return f"{code}:{signal}"


def _gres(job: Any) -> str:
    """Return the request for each node. Raises Unsure if pyslurm cannot read a request."""
    counts = job.gres_per_node
    if not counts and "tres-per-node" in (job.submit_line or ""):
        raise Unsure(f"job {job.id}: --tres-per-node")
    return ",".join(f"gres/{name}:{count}" for name, count in sorted(counts.items()))


def _said(job: Any) -> str:
    """Return the beginning of Comment, cut and filled as by squeue."""
    try:
        raw = _line(job.comment or "").encode("utf-8", "surrogateescape")
    except UnicodeDecodeError:  # no agent wrote that
        raw = b""
    return raw[:SAID_WIDTH].ljust(SAID_WIDTH).decode("utf-8", "surrogateescape")


def _words(text: Optional[str]) -> str:
    return text or ""


def _line(text: str) -> str:
    """Return the text. Raises Unsure for a line break, which would end the record."""
    if text and text.splitlines() != [text]:
        raise Unsure("a comment of several lines")
    return text


def main() -> int:
    """Print the answer. Return UNSURE if squeue must be asked, 1 if Slurm does not answer."""
    os.environ["SLURM_BITSTR_LEN"] = "0"  # no list of elements is cut short
    try:
        import pyslurm  # noqa: PLC0415  (starts libslurm, which reads slurm.conf)
    except ImportError as error:
        print(f"pyslurm cannot be loaded: {error}", file=sys.stderr)
        return UNSURE
    try:
        text = "".join(f"{line}\n" for line in answer(pyslurm.Jobs.load().values()))
    except pyslurm.RPCError as error:
        print(f"Unable to contact slurm controller: {error}", file=sys.stderr)
        return 1
    except (Unsure, UnicodeDecodeError) as error:
        print(f"squeue has to be asked: {error}", file=sys.stderr)
        return UNSURE
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # without libslurm's cleanup, which could hang
