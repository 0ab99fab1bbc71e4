"""Whether others could write to a file or directory, or put something else in its place."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Optional

OTHERS = stat.S_IWGRP | stat.S_IWOTH
"""The rights of others than the owner to write."""


def is_open(found: os.stat_result, trusted: Collection[int]) -> bool:
    """True if users who are not `trusted` (uids) could write there, or give that right."""
    return found.st_uid not in trusted or bool(found.st_mode & OTHERS)


def open_above(
    path: Path, trusted: Optional[Collection[int]] = None, rights: int = OTHERS
) -> Optional[Path]:
    """The first directory above `path` in which somebody else could put another file in its place.

    That takes one of the `rights`, or a directory of a user who is not `trusted` (None: all are).
    In a sticky directory such as /tmp nobody replaces what belongs to another. `path` itself need
    not be there. Raises OSError.
    """
    for above in path.parents:
        found = above.stat()
        is_kept = found.st_mode & stat.S_ISVTX
        is_strange = trusted is not None and found.st_uid not in trusted
        if is_strange or (found.st_mode & rights and not is_kept):
            return above
    return None
