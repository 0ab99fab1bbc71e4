"""Let one process of the job at a time put a checkpoint's file into its place.

An agent that leaves checks whether the file is older and replaces it. Other processes train on and
may write a newer file between these two actions. The lock is a file in the job's directory. If the
file system has no locks, or a process holds the lock for long, the short gap between the check and
the replacement remains.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Optional

from slurm_hooks.elastic.log import suppressed
from slurm_hooks.elastic.private_directory import await_lock, job_directory

PATIENCE_S = 2.0
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@contextmanager
def turn(env: Mapping[str, str], patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Within, no other process of the job replaces a file. Does not raise."""
    handle = _open(env)
    if handle is None:
        yield
        return
    try:
        await_lock(handle, time.monotonic() + patience_s)
        yield
    finally:
        os.close(handle)


def _open(env: Mapping[str, str]) -> Optional[int]:
    place = job_directory(env)
    if place is not None:
        with suppressed(OSError, doing="opening the lock of checkpoint files"):
            return os.open(place / "checkpoint.lock", _FLAGS, 0o600)
    return None
