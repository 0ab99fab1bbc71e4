"""A file in which a worker writes how many nodes its job wants. A change is told to Slurm."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from slurm_hooks.elastic.batch.comment_writer import writer_of
from slurm_hooks.elastic.batch.wish import WishError, wish_of
from slurm_hooks.elastic.log import debug, say

EVERY_S = 5.0  # slurmctld is told no more often
_LENGTH = 32  # bytes that are read of it


class WishFile:
    """Methods do not raise, and do not wait for Slurm."""

    def __init__(self, path: Optional[Path], env: Mapping[str, str]) -> None:
        self._path = path
        self._env = env
        self._last: Optional[str] = None
        self._next = 0.0

    def look(self) -> None:
        """Tell Slurm if the number has changed."""
        now = time.monotonic()
        if self._path is None or now < self._next:
            return
        self._next = now + EVERY_S
        text = _read(self._path)
        if text is not None and text != self._last:
            self._last = text
            try:
                name, wish = wish_of(self._env, text)
            except WishError as error:
                say(f"{self._path}: {error}")
                return
            writer_of(name).want("wish", wish)


def _read(path: Path) -> Optional[str]:
    """Return the word in it, or `None` if the file is missing or still empty."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            text = file.read(_LENGTH) or b""
    except OSError as error:
        debug(f"reading {path}", error)
        return None
    return text.decode("ascii", "replace").strip() or None
