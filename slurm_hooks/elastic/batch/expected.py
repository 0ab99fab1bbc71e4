"""Which fragments of this job run or are about to, according to squeue.

A job grows by elements of its array being released, so what runs or is released is the size
that is wanted, and a newcomer can know who else is on the way. Pure: the command, and how to
read its answer. It ends with the Comment, which the job's user may write, in lines of any form: a
row that it forges is one of the user's own job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Optional

MOST = 4096

_ROW = re.compile(
    r"([0-9]{1,9})\|([A-Z_]+)\|([0-9]{1,10})\|([1-9][0-9]{0,5})\|([^|]*)\|([^|]*)\|([^|]*)\|(.*)"
)
_RUNNING = frozenset({"RUNNING", "CONFIGURING"})


@dataclass(frozen=True)
class ArrayFacts:
    """`starts`, `ends`: of this fragment's lease in epoch seconds of slurmctld's clock, 0 if
    unknown. `wanted`: a fragment number for every agent (one a node) that runs or is about to,
    empty if unknown. `comment`: this fragment's, None if it is not known for certain."""

    starts: int = 0
    ends: int = 0
    wanted: tuple[int, ...] = ()
    comment: Optional[str] = None


class Row(NamedTuple):
    """One element of the array; times in epoch seconds, 0 if unknown."""

    fragment: int
    state: str
    priority: int
    nodes: int
    starts: int
    ends: int
    reason: str
    comment: str


def own_job(env: Mapping[str, str]) -> str:
    """How squeue and scontrol name this job, empty outside of one. One element of
    an array has the array's own id in SLURM_JOB_ID, which to Slurm means all of them."""
    array, task = env.get("SLURM_ARRAY_JOB_ID", ""), env.get("SLURM_ARRAY_TASK_ID", "")
    if _is_number(array) and _is_number(task):
        return f"{array}_{task}"
    job = env.get("SLURM_JOB_ID", "")
    return job if _is_number(job) else ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def request(array_job: str) -> list[str]:
    """The command that lists the elements of a job array, a line each: number, state,
    priority, nodes, start and end (epoch seconds with SLURM_TIME_FORMAT=%s), reason, Comment."""
    return [
        "squeue",
        "--noheader",
        f"--job={array_job}",
        "--array",
        "--format=%K|%T|%Q|%D|%S|%e|%r|%k",
    ]


def rows(text: str) -> Iterator[Row]:
    """The answer to `request`; lines of another form are passed over."""
    for line in text.splitlines():
        found = _ROW.fullmatch(line)
        if found:
            fragment, state, priority, nodes, start, end, reason, comment = found.groups()
            yield Row(
                fragment=int(fragment),
                state=state,
                priority=int(priority),
                nodes=int(nodes),
                starts=epoch(start),
                ends=epoch(end),
                reason=reason,
                comment=comment,
            )


def parse(text: str, own: int) -> ArrayFacts:
    """What squeue said to the fragment `own`. If that is not among those that run, the answer
    does not show who is wanted."""
    starts, ends, wanted, is_here = 0, 0, [], False
    for row in rows(text):
        if row.fragment == own:
            is_here, starts, ends = row.state in _RUNNING, row.starts, row.ends
        if is_wanted(row.state, row.priority, row.reason):
            wanted += [row.fragment] * min(row.nodes, MOST)
    everybody = tuple(sorted(wanted)[:MOST]) if is_here else ()
    return ArrayFacts(starts, ends, everybody, _comment_of(text, own))


def _comment_of(text: str, own: int) -> Optional[str]:
    """The Comment of the fragment `own`, if it is one line. A line that is no row, or a second
    row of a fragment, belongs to a Comment, and may belong to this one."""
    told = {row.fragment: row.comment for row in rows(text)}
    return told.get(own) if len(told) == len(text.splitlines()) else None


def is_wanted(state: str, priority: int, reason: str) -> bool:
    """Whether an element in this state runs or is about to. Held ones (priority 0) are not
    wanted. One that Slurm itself requeued rests for two minutes (BeginTime); it was
    preempted, and what becomes of it is not decided. A completing one is ending."""
    if state in _RUNNING:
        return True
    return state == "PENDING" and priority > 0 and reason != "BeginTime"


def epoch(text: str) -> int:
    """Epoch seconds from a time of squeue's, 0 if there is none ("N/A", nothing, junk)."""
    word = text.strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 12 else 0
