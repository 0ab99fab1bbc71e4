"""A checkpoint's file while it is written: a draft beside it, which replaces it when it is whole.

Several processes may write the same file: a training process, an agent that leaves, and a process
of a round that is over, on a node that has lost the network but not the storage. Each has its own
draft, and the file with the newest step stays.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from slurm_hooks.elastic.log import suppressed
from slurm_hooks.elastic.script.stored_step import step_on_disk
from slurm_hooks.elastic.script.turn import turn

QUIET_S = 600.0
"""A draft that has not grown for so long has no writer any more. The time counts from a draft that
was just made there, since the clock of a file server may be wrong. Hosts that write the times
themselves differ less, since munge refuses a host that is off by 5 minutes."""
_END = ".new"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PLACE = ("MALLEABLE_FRAGMENT", "MALLEABLE_JOB_ID", "SLURM_PROCID")
_open: set[Path] = set()  # of this process


class Draft:
    """An empty draft next to `path`, to which no other process writes. Raises OSError."""

    def __init__(self, path: Path, env: Mapping[str, str]) -> None:
        self._file, self._env = path, env
        self.path = _make(path, env)

    def put(self, step: int, own: int = -1) -> int:
        """Replace the file, unless it holds a newer step of another writer. Return the step that
        the file then holds. Raises OSError.

        `own` is the step that this writer put there last.
        """
        with turn(self._env):
            there = step_on_disk(self._file)
            is_next = there in (-1, own) or there <= step
            if is_next:
                os.replace(self.path, self._file)
        self.drop()
        return step if is_next else there

    def drop(self) -> None:
        """Remove the draft."""
        _open.discard(self.path)
        with suppress(OSError):
            self.path.unlink()

    def sweep(self) -> None:
        """Remove the drafts of writers that were killed. Does not raise.

        These are drafts of earlier processes of this place, where one process at a time trains, and
        drafts of any place that have been quiet for long.
        """
        own = _stem(self._file, self._env) if self._env.get(_PLACE[0]) else None
        with suppressed(OSError, doing=f"looking for drafts of {self._file}"):
            quiet_since = self.path.lstat().st_mtime - QUIET_S
            for draft in _drafts(self._file):
                is_over = own is not None and draft.name.startswith(own) and draft not in _open
                if _is_own_file(draft) and (is_over or draft.lstat().st_mtime < quiet_since):
                    draft.unlink()


def _make(path: Path, env: Mapping[str, str]) -> Path:
    names = (f"{_stem(path, env)}{os.getpid()}.{count}{_END}" for count in itertools.count())
    for draft in map(path.with_name, names):
        if draft not in _open:
            _open.add(draft)
            with suppress(FileExistsError):  # of another process that had this number
                os.close(os.open(draft, _FLAGS, 0o666))
                return draft
            _open.discard(draft)
    raise AssertionError


def _stem(path: Path, env: Mapping[str, str]) -> str:
    """Return how drafts of this place begin: fragment, job and node in the fragment."""
    words = (env.get(name, "") for name in _PLACE)
    return ".".join([path.name, *(word if word.isdigit() else "0" for word in words), ""])


def _drafts(path: Path) -> list[Path]:
    is_draft = re.compile(re.escape(path.name) + r"(\.\d+){5}" + re.escape(_END)).fullmatch
    return [path.with_name(name) for name in filter(is_draft, os.listdir(path.parent))]


def _is_own_file(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
