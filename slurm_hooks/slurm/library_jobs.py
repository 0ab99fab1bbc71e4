"""A program: what squeue would answer to the gateway's question about jobs, from libslurm.

    python -I library_jobs.py

It is a process of its own because a library call cannot be given a time limit, and because what
libslurm takes or breaks then ends with it. It imports pyslurm and nothing of ours. It writes out
in full only those records that matter: those that carry a mark, planned and recent starts, what was
cancelled, and what waits for a limit or is named in a mark; the others are counted. Where pyslurm
(25.11.2) loses something that squeue prints, it ends with UNSURE, and the caller asks squeue.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Optional

UNSURE = 3
SAID_WIDTH = 145  # as in rows.py, as is the next
RECORD_END = "|" + "=" * (SAID_WIDTH + 1)
RECENT_S = 900  # as in starts.py
MARK = "malleable{"
_NAMED = re.compile(r"malleable\{(?:[^{}]*,)?for=([0-9_+]+)")
_LIMIT = re.compile(r"Assoc|QOS|Max.*Per")


class Unsure(Exception):
    """pyslurm does not say what squeue would."""


def answer(jobs: Iterable[Any]) -> Iterator[str]:
    """The lines of an answer to jobs_command() from pyslurm's jobs, the last one with a count.

    Raises Unsure.
    """
    others = 0
    found = list(jobs)
    last = max((job.start_time for job in found if _has_begun(job)), default=0)
    named = {name for job in found for name in _NAMED.findall(_words(job.admin_comment))}
    for job in found:
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
    """`last` is when the last of all jobs began: starts not long before that are remembered."""
    state = job.state
    if _has_begun(job) and last - job.start_time <= RECENT_S:
        return True
    if state == "PENDING" and job.start_time and job.scheduled_nodes:
        return True
    return state == "CANCELLED" or MARK in _words(job.admin_comment)


def _waits(job: Any, names: Iterable[str], named: set[str]) -> bool:
    """Whether a job waits for a limit, or its elements, `names`, are `named` in a mark."""
    if job.state != "PENDING":
        return False
    return bool(_LIMIT.match(job.state_reason or "")) or not named.isdisjoint(names)


def element_names(job: Any) -> list[str]:
    """What squeue --array calls a record: a job, an element, or elements that are still one."""
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
    """A line from its second field on."""
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
        else "0:0",  # nobody reads theirs
        job.state_reason or "None",  # pyslurm takes the word None for nothing
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
    """Code and signal. Raises Unsure: pyslurm says 9 of 137, and 0 of 128."""
    code, signal = job.exit_code, job.exit_code_signal
    if not signal and (code or state == "FAILED"):
        raise Unsure(f"job {job.id}: an exit code of {code} or {code + 128}")
    return f"{code}:{signal}"


def _gres(job: Any) -> str:
    """What is asked of each node. Raises Unsure where something is and pyslurm cannot read it."""
    found = job.gres_per_node
    if not found and "tres-per-node" in (job.submit_line or ""):
        raise Unsure(f"job {job.id}: --tres-per-node")
    return ",".join(f"gres/{name}:{count}" for name, count in sorted(found.items()))


def _said(job: Any) -> str:
    """The beginning of Comment, cut and filled as squeue does it."""
    try:
        raw = _line(job.comment or "").encode("utf-8", "surrogateescape")
    except UnicodeDecodeError:  # no agent wrote that
        raw = b""
    return raw[:SAID_WIDTH].ljust(SAID_WIDTH).decode("utf-8", "surrogateescape")


def _words(text: Optional[str]) -> str:
    return text or ""


def _line(text: str) -> str:
    """A line break would end the record, as it does in squeue's answer. Raises Unsure."""
    if text and text.splitlines() != [text]:
        raise Unsure("a comment of several lines")
    return text


def main() -> int:
    """Prints the answer; UNSURE if squeue has to be asked, 1 if Slurm does not answer."""
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
    os._exit(status)  # nothing of libslurm's is worth tidying up, and it may not hang here either
