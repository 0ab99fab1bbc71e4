"""Opens the ledger: to write in a tick, or to read while a tick writes."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

from slurm_hooks.books.ledger.schema import APPLICATION_ID, CREATE, VERSION
from slurm_hooks.books.storage import database
from slurm_hooks.books.storage.database import Damaged, Kind, Unusable

__all__ = ["Damaged", "Unusable", "ledger_path", "reading", "writing"]

LEDGER = Kind("ledger", APPLICATION_ID, VERSION, CREATE)
NAME = "ledger.sqlite"


def ledger_path(state_dir: str) -> Path:
    """Return the path of the ledger in a state directory."""
    return Path(state_dir) / NAME


def writing(path: Path, max_mib: int) -> AbstractContextManager[sqlite3.Connection]:
    """Return a connection in a transaction. Raises the same as `database.writing`."""
    return database.writing(path, LEDGER, max_mib)


def reading(path: Path) -> AbstractContextManager[sqlite3.Connection]:
    """Return a read-only connection to a fixed state. Raises the same as `database.reading`."""
    return database.reading(path, LEDGER)
