"""Opens the file of learned knowledge."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import AbstractContextManager
from pathlib import Path

from slurm_hooks.books.storage import database
from slurm_hooks.books.storage.database import Damaged, Kind
from slurm_hooks.learning.store.schema import APPLICATION_ID, CREATE, VERSION
from slurm_hooks.settings.values import Settings

NAME = "learned.sqlite"
PATIENCE_S = 0.2  # a tick waits no longer for its curves
PUBLIC, PRIVATE = 0o644, 0o640


def learned_path(settings: Settings) -> Path:
    """The path of the file."""
    return Path(settings.tick.state_dir) / NAME


def is_there(path: Path) -> bool:
    """Tell whether the file exists. True also if it cannot be checked, where Path.exists raises."""
    try:
        return path.exists()
    except OSError:
        return True


def writing(settings: Settings) -> AbstractContextManager[sqlite3.Connection]:
    """A connection in a transaction. Raises as `database.writing`."""
    kind = _kind(PUBLIC if settings.learn.public else PRIVATE)
    return database.writing(learned_path(settings), kind, settings.learn.max_mib)


def protect(settings: Settings) -> None:
    """Give the file the rights that the settings ask for, whatever the umask. Raises OSError."""
    path, mode = learned_path(settings), PUBLIC if settings.learn.public else PRIVATE
    if stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)


def reading(
    settings: Settings, patience_s: float = PATIENCE_S
) -> AbstractContextManager[sqlite3.Connection]:
    """A read-only connection that sees a single moment. Raises as `database.reading`."""
    return database.reading(learned_path(settings), _kind(), patience_s)


def damage(settings: Settings) -> str:
    """Say how the file is damaged.

    Empty if it is sound. Raises Unusable if that is not visible now.
    """
    try:
        with reading(settings, PATIENCE_S) as connection:
            (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except Damaged as error:
        return str(error)
    return "" if said == "ok" else str(said)


def _kind(mode: int = PRIVATE) -> Kind:
    return Kind("file of learned rates", APPLICATION_ID, VERSION, CREATE, mode=mode)
