"""Tells whether other users could write to a file or directory, or replace it."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Optional

OTHERS = stat.S_IWGRP | stat.S_IWOTH
"""The rights to write of users other than the owner."""


def is_open(status: os.stat_result, trusted: Collection[int]) -> bool:
    """True if users who are not `trusted` (uids) could write there, or give that right."""
    return status.st_uid not in trusted or bool(status.st_mode & OTHERS)


def open_above(
    path: Path, trusted: Optional[Collection[int]] = None, rights: int = OTHERS
) -> Optional[Path]:
    """Return the first directory above `path` in which another user could replace it.

    That takes any of the `rights`, or a directory of a user who is not `trusted` (None: all are).
    In a sticky directory such as /tmp users cannot replace another user's files. `path` itself need
    not exist. Raises OSError.
    """
    for above in path.parents:
        status = above.stat()
        is_kept = status.st_mode & stat.S_ISVTX
        is_strange = trusted is not None and status.st_uid not in trusted
        if is_strange or (status.st_mode & rights and not is_kept):
            return above
    return None
