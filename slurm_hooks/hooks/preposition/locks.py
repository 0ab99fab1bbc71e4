"""Locks that end with their process. Their files may be removed by the process that has the
lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import Optional


@contextlib.contextmanager
def locked(name: str, wait: bool = True) -> Iterator[bool]:
    """Take the lock of that name. Yields False if another process has it and `wait` is false."""
    file = _lock(name, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    try:
        yield file is not None
    finally:
        if file is not None:
            os.close(file)


def _lock(name: str, how: int) -> Optional[int]:
    while True:
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, how)
        except BlockingIOError:
            os.close(file)
            return None
        if _is_still(file, name):
            return file
        os.close(file)


def _is_still(file: int, name: str) -> bool:
    """Tell whether the name still belongs to this file: an earlier owner may have removed it."""
    try:
        return os.path.samestat(os.fstat(file), os.lstat(name))
    except FileNotFoundError:
        return False
