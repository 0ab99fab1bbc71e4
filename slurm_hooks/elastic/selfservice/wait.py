"""`malleable wait JOBID`: wait for the end of a malleable job, for tools that chain jobs.

Such tools take a requeued array for finished, and a dependency `afterok` waits forever, since
elements that are no longer needed end as CANCELLED. It works for installed sites too.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Optional

from slurm_hooks.elastic.batch.command import ask
from slurm_hooks.protocol.comment import Standing, parse

USAGE = """\
usage: malleable wait JOBID

Wait until the job has ended. The exit code is 0 if it finished, 1 if it failed, 2 if it was
cancelled, and 3 if Slurm does not know the job.
"""
FINISHED, FAILED, CANCELLED, UNKNOWN = 0, 1, 2, 3
WORDS = {
    FINISHED: "job {job} has finished",
    FAILED: "job {job} has failed",
    CANCELLED: "job {job} was cancelled",
    UNKNOWN: "Slurm does not know a job {job}",
}
FIRST_S, LAST_S = 2.0, 30.0  # between two questions
FORMAT = "%T|%M|%k"
_GONE = re.compile(r"invalid job id", re.IGNORECASE)
_FAILURES = frozenset({"BOOT_FAIL", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"})
_OVER = _FAILURES | {"CANCELLED", "COMPLETED", "PREEMPTED", "REVOKED"}


def verdict(rows: Sequence[str]) -> Optional[int]:
    """Return the exit code by the rows of all elements, `None` if the job has not ended. A row is
    `state|time used|Comment`.
    """
    known = [row.split("|", 2) for row in rows if row.count("|") > 1]
    states = {words[0].split()[0].rstrip("+") for words in known if words[0]}
    if not states:
        return UNKNOWN
    if states - _OVER:
        return None
    sound = [words for words in known if words[0].startswith(("CANCELLED", "COMPLETED"))]
    if any(parse(words[2]).standing is Standing.FINISHED for words in sound):
        return FINISHED
    if states & _FAILURES:
        return FAILED
    is_cut = any(words[0].startswith("CANCELLED") and words[1].strip("0:") for words in known)
    return FINISHED if "COMPLETED" in states and not is_cut else CANCELLED


def wait(words: Sequence[str], env: Mapping[str, str]) -> int:
    """Wait for the job that `words` name. Return the exit code."""
    if len(words) != 1 or not re.fullmatch(r"[1-9][0-9]{0,9}", words[0]):
        sys.stderr.write(USAGE)
        return 0 if words[:1] in (["--help"], ["-h"]) else os.EX_USAGE
    if shutil.which("squeue") is None:
        sys.stderr.write(
            "malleable wait: squeue is not in PATH; run it where Slurm's commands are\n"
        )
        return UNKNOWN
    try:
        code = _wait(words[0])
    except KeyboardInterrupt:
        return 130
    print(WORDS[code].format(job=words[0]))
    return code


def _wait(job: str) -> int:
    pause_s, before = FIRST_S, ""
    while True:
        code, why = _look(job)
        if code is not None:
            return code
        if why != before:
            sys.stderr.write(f"malleable wait: {why}; asking again\n" if why else "")
        before = why
        time.sleep(pause_s)
        pause_s = min(LAST_S, pause_s * 1.5)


def _look(job: str) -> tuple[Optional[int], str]:
    """Return the exit code, `None` as long as the job has not ended or Slurm does not answer, and
    why it does not.
    """
    said, why = ask("squeue", "--noheader", "--array", "--states=all", f"--job={job}", "-o", FORMAT)
    if why and not _GONE.search(why):
        return None, why
    if said.strip():
        return verdict(said.splitlines()), ""
    words = ("sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={job}")
    said, why = ask(*words, "--format=State,Elapsed,Comment")
    is_off = "disabled" in why or "not in PATH" in why
    return (None, why) if why and not is_off else (verdict(said.splitlines()), "")
