"""`remark{...}`: a condition that holds the job back and that its user can change.

It is in the job's output anyway. Here it is written for `malleable explain`: once a job, by the
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
from pathlib import Path

from slurm_hooks.elastic.batch.comment_writer import LOOK_S, Withdrawal, writer_of
from slurm_hooks.elastic.batch.expected import own_job
from slurm_hooks.elastic.log import suppressed
from slurm_hooks.elastic.private_directory import DirectoryError, make_private
from slurm_hooks.protocol.comment import remark_text

AGAIN_S = 3600.0
PATIENCE_S = 5.0  # at the end of the agent


def shared_directory(env: Mapping[str, str]) -> Path | None:
    """Return the job's shared directory, also if the user's rendezvous has replaced ours."""
    for name in ("MALLEABLE_DIR", "PET_RDZV_ENDPOINT"):
        if env.get(name, "").startswith("/"):
            return Path(env[name])
    return None


def is_first(directory: Path, remark: str) -> bool:
    """Tell whether no agent of this job has written it within an hour, so that this agent writes
    it. Raises OSError, DirectoryError.
    """
    make_private(directory)
    claim = _claim(directory, remark)
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        if time.time() - claim.stat().st_mtime < AGAIN_S:
            return False
        os.utime(claim)
    return True


def _claim(directory: Path, remark: str) -> Path:
    return directory / f"remark.{zlib.crc32(remark.encode()):08x}"


def withdraw_trouble(env: Mapping[str, str] = os.environ) -> None:
    """This fragment has joined a round. Withdraw its remark of an earlier run about trouble with
    the directory. Every other remark has a claim there.
    """
    job, directory = own_job(env), shared_directory(env)
    remark = writer_of(job).newest.remark if job else ""
    with suppressed(OSError, doing="looking whether a remark still holds"):
        if remark and directory and not _claim(directory, remark).exists():
            withdraw_remark(remark, env)


def withdraw_remark(text: str, env: Mapping[str, str] = os.environ) -> None:
    """Withdraw a remark that no longer holds. Returns at once. Another remark stays."""
    job, remark = own_job(env), remark_text(text)
    if job and writer_of(job).wanted("remark") in (None, remark):
        writer_of(job).want("remark", Withdrawal(remark), check_s=LOOK_S)


def write_remark(text: str, env: Mapping[str, str] = os.environ) -> None:
    """Have `malleable explain` show the text, within seconds. Returns at once.

    Without a directory, or if the trouble is with the directory, every agent writes it.
    """
    job, directory = own_job(env), shared_directory(env)
    if not text or not job:
        return
    thread = threading.Thread(target=_write, args=(job, directory, remark_text(text)), daemon=True)
    with suppressed(RuntimeError, doing="starting a thread that writes a remark"):
        thread.start()
        atexit.register(thread.join, PATIENCE_S)


def _write(job: str, directory: Path | None, remark: str) -> None:
    """Write it, in its own thread: the directory may not answer, and an interpreter that ends
    starts no other thread.
    """
    with suppressed(
        OSError, DirectoryError, doing="reading whether others have written this remark"
    ):
        if directory and not is_first(directory, remark):
            return
    with suppressed(OSError, subprocess.SubprocessError, doing="writing a remark"):
        writer_of(job).write("remark", remark, check_s=LOOK_S)
