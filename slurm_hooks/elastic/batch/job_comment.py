"""Reads and changes the Comment of this job. Its form: slurm_hooks/words/comment.py."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Optional

from slurm_hooks.words.comment import Comment, parse

EVERY_S = 60.0  # slurmctld is asked for no more than one change of a job in so many seconds
TIMEOUT_S = 10.0
_TURN = threading.Lock()  # several threads of an agent write
_seen: dict[str, tuple[float, str]] = {}  # when a Comment was asked for last, and what it was


def change(
    job: str,
    edit: Callable[[Comment], Optional[Comment]],
    limit_s: float = 2 * TIMEOUT_S,
    before: Optional[str] = None,
) -> None:
    """Replace the Comment by what `edit` makes of it; None leaves it as it is. `before` is what was
    read a moment ago, if it was. Raises OSError or SubprocessError. Processes do not exclude each
    other: a caller whose entry must not get lost reads again."""
    with _TURN:
        until = time.monotonic() + limit_s
        found = parse(read(job, limit_s) if before is None else before)
        after = edit(found)
        if after is not None and after.text != found.text:
            text = after.text.replace("\0", "")  # no argument of a command can have one
            words = ["scontrol", "update", f"JobId={job}", f"Comment={text}"]
            _ask(words, until - time.monotonic())


def missing_commands() -> list[str]:
    """Those of Slurm's commands that are needed here and cannot be found."""
    return [name for name in ("squeue", "scontrol") if shutil.which(name) is None]


def read(job: str, limit_s: float = TIMEOUT_S) -> str:
    """The Comment. Raises OSError or SubprocessError."""
    asked_at = time.monotonic()
    text = _ask(["squeue", "--noheader", f"--job={job}", "--format=%k"], limit_s)
    _seen[job] = asked_at, text
    return text


def read_since(job: str, moment: float) -> str:
    """The Comment as it was at that moment (time.monotonic()) or later: what another thread has
    read will do. Raises OSError or SubprocessError."""
    asked_at, text = _seen.get(job, (float("-inf"), ""))
    return text if asked_at >= moment else read(job)


def _ask(words: list[str], limit_s: float) -> str:
    answer = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=max(0.1, min(TIMEOUT_S, limit_s)),
        check=True,
    )
    return answer.stdout.strip()
