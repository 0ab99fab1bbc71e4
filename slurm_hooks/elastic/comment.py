"""The Comment of the own job, which its user may write. Words of ours stand there beside what
the user wrote: `progress{...}` for the profiling advisor, `remark{...}` for `malleable
explain`. It must not know what they say.
"""

from __future__ import annotations

import re
import subprocess

EVERY_S = 60.0  # slurmctld is asked for no more than one change of a job in so many seconds
TIMEOUT_S = 10.0


def merged(comment: str, word: str) -> str:
    """The comment with our word in it, or in place of the one of the same name before."""
    name = word.partition("{")[0]
    own = re.sub(name + r"\{[^{}]*\}", "", comment).strip(" ;")
    own = re.sub(r";{2,}", ";", own)
    return f"{own};{word}" if own and own != "(null)" else word


def read(job: str) -> str:
    """What stands there. Raises OSError or SubprocessError."""
    return _ask(["squeue", "--noheader", f"--job={job}", "--format=%k"])


def write(job: str, comment: str) -> None:
    """Replace it. Raises OSError or SubprocessError."""
    _ask(["scontrol", "update", f"JobId={job}", f"Comment={comment}"])


def _ask(words: list[str]) -> str:
    answer = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return answer.stdout.strip()
