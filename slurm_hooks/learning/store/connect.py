"""Opens the file of what is learned."""

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
PATIENCE_S = 0.2  # a tick that waits for its curves waits no longer
PUBLIC, PRIVATE = 0o644, 0o640


def learned_path(settings: Settings) -> Path:
    """Where it lies."""
    return Path(settings.tick.state_dir) / NAME


def is_there(path: Path) -> bool:
    """True too where nobody may look, which Path.exists raises."""
    try:
        return path.exists()
    except OSError:
        return True


def writing(settings: Settings) -> AbstractContextManager[sqlite3.Connection]:
    """A connection in one transaction; raises as `database.writing`."""
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
    """A read-only connection that sees one moment; raises as `database.reading`."""
    return database.reading(learned_path(settings), _kind(), patience_s)


def damage(settings: Settings) -> str:
    """How the file is damaged, empty if it is not; Unusable if that cannot be seen now."""
    try:
        with reading(settings, PATIENCE_S) as found:
            (said,) = found.execute("PRAGMA quick_check(1)").fetchone()
    except Damaged as error:
        return str(error)
    return "" if said == "ok" else str(said)


def _kind(mode: int = PRIVATE) -> Kind:
    return Kind("file of what is learned", APPLICATION_ID, VERSION, CREATE, mode=mode)
