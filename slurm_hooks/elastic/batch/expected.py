"""The fragments of this job that run or are about to, according to squeue.

A job grows when elements of its array are released. So the elements that run or are released show
the wanted size, and a newcomer can know which others are on the way. Pure: the command, and how to
read its answer. The answer ends with the Comment, which the job's user may write, in lines of any
form. A forged row can only concern the user's own job.
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
    """Slurm's answer about the job array.

    * `starts`, `ends`: of this fragment's lease in epoch seconds of slurmctld's clock (0: unknown).
    * `wanted`: a fragment number for every agent that runs or is about to, an agent for each node.
      Empty if unknown.
    * `comment`: this fragment's Comment, `None` if it is not known for certain.
    """

    starts: int = 0
    ends: int = 0
    wanted: tuple[int, ...] = ()
    comment: Optional[str] = None


class Row(NamedTuple):
    """An element of the array. Times in epoch seconds, 0 if unknown."""

    fragment: int
    state: str
    priority: int
    nodes: int
    starts: int
    ends: int
    reason: str
    comment: str


def own_job(env: Mapping[str, str]) -> str:
    """Return this job's name for squeue and scontrol, empty outside of a job.

    An element of an array has the array's own id in SLURM_JOB_ID, which to Slurm means all
    elements.
    """
    array, task = env.get("SLURM_ARRAY_JOB_ID", ""), env.get("SLURM_ARRAY_TASK_ID", "")
    if _is_number(array) and _is_number(task):
        return f"{array}_{task}"
    job = env.get("SLURM_JOB_ID", "")
    return job if _is_number(job) else ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def request(array_job: str) -> list[str]:
    """Return the command that lists the elements of a job array.

    It prints a line each: number, state, priority, nodes, start and end (epoch seconds with
    SLURM_TIME_FORMAT=%s), reason, Comment.
    """
    return [
        "squeue",
        "--noheader",
        f"--job={array_job}",
        "--array",
        "--format=%K|%T|%Q|%D|%S|%e|%r|%k",
    ]


def rows(text: str) -> Iterator[Row]:
    """Yield the rows of the answer to `request`. Lines of another form are passed over."""
    for line in text.splitlines():
        match = _ROW.fullmatch(line)
        if match:
            fragment, state, priority, nodes, start, end, reason, comment = match.groups()
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
    """Return squeue's answer to the fragment `own`. If that fragment does not run by this answer,
    `wanted` stays empty.
    """
    starts, ends, wanted, is_here = 0, 0, [], False
    for row in rows(text):
        if row.fragment == own:
            is_here, starts, ends = row.state in _RUNNING, row.starts, row.ends
        if is_wanted(row.state, row.priority, row.reason):
            wanted += [row.fragment] * min(row.nodes, MOST)
    all_wanted = tuple(sorted(wanted)[:MOST]) if is_here else ()
    return ArrayFacts(starts, ends, all_wanted, _comment_of(text, own))


def _comment_of(text: str, own: int) -> Optional[str]:
    """Return the Comment of the fragment `own`, if it is a single line.

    A line that is no row, or a second row of a fragment, belongs to a Comment, and may belong to
    this Comment.
    """
    comments = {row.fragment: row.comment for row in rows(text)}
    return comments.get(own) if len(comments) == len(text.splitlines()) else None


def is_wanted(state: str, priority: int, reason: str) -> bool:
    """Tell whether an element in this state runs or is about to.

    Held elements (priority 0) are not wanted. An element that Slurm requeued rests for two minutes
    (BeginTime). It was preempted, and its future is undecided. A completing element is ending.
    """
    if state in _RUNNING:
        return True
    return state == "PENDING" and priority > 0 and reason != "BeginTime"


def startable(text: str) -> tuple[int, ...]:
    """Return the elements that Slurm may start by its answer to `request`: they wait, and nobody
    holds them.
    """
    return tuple(row.fragment for row in rows(text) if row.state == "PENDING" and row.priority > 0)


def epoch(text: str) -> int:
    """Return epoch seconds from a time of squeue's, 0 for any other text ("N/A", junk)."""
    word = text.strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 12 else 0
