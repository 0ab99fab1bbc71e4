"""The element of a job array for which this agent reports, and its run. Only values, which
own_element.py writes or asks for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from slurm_hooks.elastic.batch.expected import epoch, own_job

_ASKED_TO_LEAVE = re.compile(r"malleable\{(?:[^{}]*,)?leave=([0-9]{1,12})[,}]")
_HERE = frozenset(
    [
        "CONFIGURING",
        "RUNNING",
        "SUSPENDED",
        "STOPPED",
        "SIGNALING",
        "RESIZING",
        "STAGE_OUT",
        "COMPLETING",
    ]
)


def element(env: Mapping[str, str]) -> str:
    """Return Slurm's name of this element of a job array, empty outside of an array."""
    job = own_job(env)
    return job if "_" in job else ""


def is_reporter(env: Mapping[str, str]) -> bool:
    """Tell whether this agent reports for its fragment: it runs on the fragment's first node."""
    return env.get("SLURM_PROCID", "") in ("", "0")


def run_of(env: Mapping[str, str]) -> int:
    """Return the run of the element: how often Slurm has restarted it."""
    count = env.get("SLURM_RESTART_COUNT", "")
    return int(count) if count.isascii() and count.isdigit() and len(count) < 10 else 0


def notice_request(job: str) -> list[str]:
    """Return the command that prints an element's start, in epoch seconds, and its mark."""
    return ["squeue", "--noheader", f"--job={job}", "--Format=StartTime:32,admin_comment:4096"]


def is_noticed(answer: str) -> bool:
    """Tell whether by the answer to `notice_request` a tick has asked this run to leave. The mark
    may name an earlier run.
    """
    start, _, mark = answer.partition(" ")
    asked = _ASKED_TO_LEAVE.search(mark)
    return asked is not None and 0 < epoch(start) < int(asked[1])


def hold_request(job: str) -> list[str]:
    """Return the command that prints an element's priority."""
    return ["squeue", "--noheader", f"--job={job}", "--Format=PriorityLong:32"]


def is_held(answer: str) -> bool:
    """Tell whether by the answer to `hold_request` the element is held. A requeue keeps that."""
    return answer.strip() == "0"


def run_request(job: str) -> list[str]:
    """Return the command that prints an element's state, and how often Slurm has restarted it."""
    return ["squeue", "--noheader", f"--job={job}", "--Format=State:32,RestartCnt:16"]


def is_other_run(answer: str, run: int) -> bool:
    """Tell whether by the answer to `run_request` Slurm has ended this run of the element. It may
    have begun the next on another node. Without an answer, nothing is known.
    """
    words = answer.split()
    if len(words) != 2 or not (words[1].isascii() and words[1].isdigit()):
        return False
    return words[0] not in _HERE or int(words[1]) != run
