"""`remark{...}`: something that holds the job back and that its user can change.

It is in the job's output anyway; here it is written for `malleable explain`: once a job, by the
first agent that notices, in the background. So failures are not reported.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from slurm_hooks.elastic.batch import job_comment
from slurm_hooks.elastic.batch.expected import own_job
from slurm_hooks.elastic.log import suppressed
from slurm_hooks.elastic.private_directory import DirectoryError, make_private
from slurm_hooks.words.comment import Comment, remark_text

AGAIN_S = 3600.0
PATIENCE_S = 5.0  # at the end of the agent
_written_at = float("-inf")  # in this process, by its monotonic clock


def shared_directory(env: Mapping[str, str]) -> Path | None:
    """The job's shared directory, also where the user's rendezvous has replaced ours."""
    for name in ("MALLEABLE_DIR", "PET_RDZV_ENDPOINT"):
        if env.get(name, "").startswith("/"):
            return Path(env[name])
    return None


def is_first(directory: Path, remark: str) -> bool:
    """Whether no agent of this job has written it within an hour; if so, this one is to.
    Raises OSError, DirectoryError."""
    make_private(directory)
    claim = directory / f"remark.{zlib.crc32(remark.encode()):08x}"
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        if time.time() - claim.stat().st_mtime < AGAIN_S:
            return False
        os.utime(claim)
    return True


def withdraw_remark(text: str, env: Mapping[str, str] = os.environ) -> None:
    """What was written does not hold any more; returns at once. Another remark stays."""
    job = own_job(env)
    if job:
        with suppressed(RuntimeError, doing="starting a thread that withdraws a remark"):
            threading.Thread(target=_withdraw, args=(job, remark_text(text)), daemon=True).start()


def _withdraw(job: str, remark: str) -> None:
    def edit(before: Comment) -> Comment:
        return replace(before, remark="") if before.remark == remark else before

    with suppressed(OSError, subprocess.SubprocessError, doing="withdrawing a remark"):
        job_comment.change(job, edit)


def write_remark(text: str, env: Mapping[str, str] = os.environ) -> None:
    """Have `malleable explain` show the text, within seconds; returns at once. Where there is
    no directory, or the trouble is with the directory, every agent writes it."""
    global _written_at  # noqa: PLW0603
    job, directory = own_job(env), shared_directory(env)
    if not text or not job:
        return
    _written_at = time.monotonic()
    thread = threading.Thread(target=_write, args=(job, directory, remark_text(text)), daemon=True)
    with suppressed(RuntimeError, doing="starting a thread that writes a remark"):
        thread.start()
        atexit.register(thread.join, PATIENCE_S)


def wait_s(every_s: float) -> float:
    """Seconds until news may be written, after a remark of this process."""
    return max(0.0, every_s - (time.monotonic() - _written_at))


def _write(job: str, directory: Path | None, remark: str) -> None:
    with suppressed(OSError, DirectoryError, doing="looking for the same remark of others"):
        if directory and not is_first(directory, remark):
            return
    with suppressed(OSError, subprocess.SubprocessError, doing="writing a remark"):
        job_comment.change(job, lambda before: replace(before, remark=remark))
