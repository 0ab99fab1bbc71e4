"""Where this agent's fragment stands, as reported to the reconciler: one word, and the run of
the element that it is about. A reconciler that inferred it from exit codes and times would take
a leave for a finish.

Only values; own_element.py writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from slurm_hooks.elastic.batch import job_comment
from slurm_hooks.elastic.batch.expected import own_job


class Standing(str, Enum):
    """The words, in the order in which a run reports them; each replaces the one before."""

    STARTED = "started"  # there is an agent; it may give up before its first round
    WAITING = "waiting"  # it has found its job's directory, and has waited there for a minute
    JOINED = "joined"  # it is in its first round
    TRAINED = "trained"  # it has made progress
    LEAVING = "leaving"  # it has begun to leave
    APART = "apart"  # others of this job train in another directory, so it gives up
    FINISHED = "finished"  # the training has finished, not only the processes here


def element(env: Mapping[str, str]) -> str:
    """How Slurm names this element of a job array, empty outside of one."""
    job = own_job(env)
    return job if "_" in job else ""


def is_reporter(env: Mapping[str, str]) -> bool:
    """Whether this is the one agent that reports for its fragment: that of its first node."""
    return env.get("SLURM_PROCID", "") in ("", "0")


def run_of(env: Mapping[str, str]) -> int:
    """The run of the element: how often Slurm has restarted it."""
    count = env.get("SLURM_RESTART_COUNT", "")
    return int(count) if count.isascii() and count.isdigit() and len(count) < 10 else 0


def entry(standing: Standing, run: int) -> str:
    """`joined{3}`: 24 characters at most, as far as the reconciler reads."""
    return f"{standing.value}{{{run}}}"


def holds(text: str, standing: Standing, run: int) -> bool:
    """Whether the comment says so."""
    return job_comment.standing(text) == entry(standing, run)
