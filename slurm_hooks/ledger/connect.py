"""Opens the ledger: to write in a tick, or to read while a tick writes."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from slurm_hooks.ledger.schema import ADDED, APPLICATION_ID, CREATE, VERSION

BUSY_S = 1.0  # a tick waits no longer for somebody who holds the file
READ_BUSY_S = 5.0
MODE = 0o640
PAGES_BEFORE_CHECKPOINT = 1000


class Unusable(Exception):
    """The ledger cannot be used now: locked, disk full, no right to; the text says why."""


class Damaged(Unusable):
    """The file is no ledger that this version can read."""


@contextlib.contextmanager
def writing(path: Path, max_mib: int) -> Iterator[sqlite3.Connection]:
    """A connection in one transaction, which is kept if the body ends well.

    Raises Damaged; Unusable if the disk is full, the file locked or not to be written; OSError.
    """
    is_new = not path.exists()
    if is_new:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, MODE))
    with _as_ours(), contextlib.closing(_connect(path)) as ledger:
        _prepare(ledger, max_mib)
        ledger.execute("BEGIN IMMEDIATE")
        try:
            yield ledger
            ledger.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                ledger.execute("ROLLBACK")
            raise


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection that sees one moment, whatever a tick writes meanwhile.

    Raises Damaged; Unusable if the file is not there or may not be read.
    """
    with contextlib.suppress(OSError):  # which SQLite then tells
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Unusable("it is not a plain file")
    with _as_ours(), contextlib.closing(_connect_to_read(path)) as ledger:
        _check(ledger)
        ledger.execute("BEGIN")
        yield ledger


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """Who may not write beside the ledger can read it only while a tick has it open, or as a file
    that does not change."""
    found = sqlite3.OperationalError()
    for way in ("mode=ro", "mode=ro&immutable=1"):
        uri = f"file:{quote(str(path))}?{way}"
        try:
            ledger = sqlite3.connect(uri, uri=True, timeout=READ_BUSY_S, isolation_level=None)
            ledger.execute("PRAGMA user_version").fetchone()
            return ledger
        except sqlite3.OperationalError as error:
            found = error
    raise found


def _prepare(ledger: sqlite3.Connection, max_mib: int) -> None:
    """Settings of this connection, and the tables of a new file."""
    ledger.execute("PRAGMA synchronous=NORMAL")
    ledger.execute(f"PRAGMA wal_autocheckpoint={PAGES_BEFORE_CHECKPOINT}")
    if _version(ledger) == 0 and not ledger.execute("SELECT 1 FROM sqlite_master").fetchone():
        ledger.execute("PRAGMA auto_vacuum=INCREMENTAL")
        ledger.execute("PRAGMA journal_mode=WAL")
        stamp = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={VERSION};"
        ledger.executescript(f"BEGIN IMMEDIATE; {CREATE} {stamp} COMMIT;")
    _check(ledger)
    ledger.execute(ADDED)
    (page,) = ledger.execute("PRAGMA page_size").fetchone()
    ledger.execute(f"PRAGMA max_page_count={max_mib * 2**20 // page}")


def _check(ledger: sqlite3.Connection) -> None:
    """Raises Damaged for a file of another program or of a later version."""
    (found,) = ledger.execute("PRAGMA application_id").fetchone()
    if (found, _version(ledger)) != (APPLICATION_ID, VERSION):
        raise Damaged(f"it is no ledger of version {VERSION} (found {found:#x}/{_version(ledger)})")


def _version(ledger: sqlite3.Connection) -> int:
    (version,) = ledger.execute("PRAGMA user_version").fetchone()
    return int(version)


@contextlib.contextmanager
def _as_ours() -> Iterator[None]:
    """SQLite's errors as ours: damage told from a lock, a full disk, a missing right."""
    try:
        yield
    except (sqlite3.OperationalError, sqlite3.IntegrityError) as error:
        lacks = "no such table" in str(error) or "no such column" in str(error)
        raise (Damaged if lacks else Unusable)(str(error)) from error
    except sqlite3.DatabaseError as error:
        raise Damaged(str(error)) from error
    except sqlite3.Error as error:
        raise Unusable(str(error)) from error
