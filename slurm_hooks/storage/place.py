"""Where a file of ours lies, and who may be able to write there: only the user of the tick."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def make_place(path: Path) -> Path:
    """The path itself, its directory being there and nobody else able to write to it.

    Raises OSError with what is wrong with the directory.
    """
    directory = path.parent
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o755, parents=True)
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{directory} is not a directory")
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        raise PermissionError(
            f"others can write to {directory} ({stat.filemode(found.st_mode)}): tick.state_dir "
            "must belong to the user that runs the tick, and to nobody else"
        )
    refuse_open_above(directory)
    for name in (path, *beside(path)):
        if name.is_symlink():
            raise PermissionError(f"{name} is a symbolic link: remove it")
    return path


def refuse_open_above(directory: Path) -> None:
    """Raises PermissionError if anybody could put another directory in the place of this one: one
    above it can be written by all, and is not sticky as /tmp is."""
    for above in directory.resolve().parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise PermissionError(
                f"others can write to {above} ({stat.filemode(mode)}) and so replace {directory}: "
                "name a directory elsewhere, or take that right away (chmod o-w)"
            )


def beside(path: Path) -> tuple[Path, ...]:
    """The files that SQLite keeps next to a database in WAL mode."""
    return tuple(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))


def aside(path: Path) -> Path:
    """Where it is if it was damaged."""
    return path.with_name(f"{path.name}.damaged")


def set_aside(path: Path) -> Path:
    """Move a damaged file out of the way, over an older damaged one. Raises OSError."""
    kept = aside(path)
    os.replace(path, kept)
    for name in beside(path):
        with contextlib.suppress(FileNotFoundError):
            name.unlink()
    return kept
