"""Finds and checks the place of a file of ours: only the user of the tick may write there."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

from slurm_hooks.model.moments import moment
from slurm_hooks.owned import is_open, open_above

NAME = "ledger.sqlite"
MOST_ASIDE = 3
"""How many damaged files of a name are kept. Each may have the largest allowed size."""


def ledger_path(state_dir: str) -> Path:
    """Return the path of the ledger in a state directory."""
    return Path(state_dir) / NAME


def make_place(path: Path) -> Path:
    """Return the path itself, after making its directory and checking that only we can write there.

    Raises OSError with the fault of the directory.
    """
    directory = path.parent
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o755, parents=True)
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{directory} is not a directory")
    if is_open(status, (0, os.geteuid())):
        raise PermissionError(
            f"others can write to {directory} ({stat.filemode(status.st_mode)}): tick.state_dir "
            "must belong to the user that runs the tick, and only that user may write to it (chmod "
            "go-w)"
        )
    refuse_open_above(directory)
    for name in (path, *beside(path)):
        if name.is_symlink():
            raise PermissionError(f"{name} is a symbolic link: remove it")
    return path


def refuse_open_above(directory: Path) -> None:
    """Raises PermissionError if any user could replace this directory: a directory above it is
    writable by all, and is not sticky as /tmp is."""
    above = open_above(directory.resolve(), rights=stat.S_IWOTH)
    if above is not None:
        mode = stat.filemode(above.stat().st_mode)
        raise PermissionError(
            f"others can write to {above} ({mode}) and so replace {directory}: "
            "name another directory, or take that right away (chmod o-w)"
        )


def beside(path: Path) -> tuple[Path, ...]:
    """Return the files that SQLite keeps next to a database in WAL mode."""
    return tuple(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))


def aside(path: Path) -> tuple[Path, ...]:
    """Return the damaged files that were moved out of its way, by the date in their names."""
    return tuple(sorted(path.parent.glob(f"{path.name}.damaged-*")))


def set_aside(path: Path) -> Path:
    """Rename a damaged file to a name with the date. The newest `MOST_ASIDE` are kept.

    Raises OSError.
    """
    for old in aside(path)[: 1 - MOST_ASIDE]:
        with contextlib.suppress(OSError):
            old.unlink()
    now = moment(time.time())
    kept = path.with_name(f"{path.name}.damaged-{now:%Y%m%dT%H%M%S.%fZ}")
    os.replace(path, kept)
    for name in beside(path):
        with contextlib.suppress(FileNotFoundError):
            name.unlink()
    return kept
