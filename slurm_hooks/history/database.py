"""Opens the ledger, an SQLite file: to write in a tick, or to read while a tick writes.

It tells damage from a full disk. `ledger` explains the tables.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

CREATE = """
CREATE TABLE event (
    at REAL NOT NULL, name TEXT NOT NULL, label TEXT NOT NULL, job INTEGER NOT NULL,
    part INTEGER NOT NULL, value REAL NOT NULL, more TEXT NOT NULL,
    PRIMARY KEY (at, name, label, job, part)) WITHOUT ROWID;
CREATE INDEX event_of ON event (job) WHERE more > '';
CREATE TABLE job (
    id INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, user TEXT NOT NULL, account TEXT,
    first_at REAL NOT NULL, last_at REAL NOT NULL, node_s REAL NOT NULL, line TEXT NOT NULL);
CREATE INDEX job_of ON job (job_id);
CREATE TABLE standing (
    name TEXT NOT NULL, label TEXT NOT NULL, value REAL NOT NULL, adds_up INTEGER NOT NULL,
    PRIMARY KEY (name, label)) WITHOUT ROWID;
CREATE TABLE last (only INTEGER PRIMARY KEY CHECK (only = 1), seen TEXT NOT NULL);
"""
VERSION = 8
APPLICATION_ID = 0x6D6C6C65  # "mlle": marks the file as ours
MODE = 0o640
BUSY_S = 1.0  # a tick waits no longer for another process that holds the file
READ_BUSY_S = 5.0
PAGES_BEFORE_CHECKPOINT = 1000
_OTHER_TABLES = ("no such table", "no such column", " columns but ")  # in SQLite's errors
_ADVICE = "run this as root or as the user that runs the tick"


class Unusable(Exception):
    """The file cannot be used now: locked, disk full, no right to. The text says why."""


class Barred(Unusable):
    """This user has no right to the file. The text names the user that has."""


class Damaged(Unusable):
    """The file is not of the kind and version that this version can read."""


@contextlib.contextmanager
def writing(path: Path, max_mib: int) -> Iterator[sqlite3.Connection]:
    """Return a connection in a transaction, which is committed if the body succeeds.

    Raises Damaged, Barred without the right to write, Unusable if the disk is full or the file
    locked, and OSError.
    """
    _raise_if_barred(path, os.R_OK | os.W_OK)
    is_new = not path.exists()
    if is_new:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, MODE))
    with _as_ours(), contextlib.closing(_connect(path)) as database:
        _prepare(database, max_mib)
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
            database.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                database.execute("ROLLBACK")
            raise


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Return a read-only connection to a fixed state, even while a tick writes.

    It waits at most 5 s for another process that holds the file. Raises Damaged, Barred
    without the right to read, and Unusable if there is no file.
    """
    _raise_if_barred(path, os.R_OK)
    with contextlib.suppress(OSError):  # SQLite then reports it
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Unusable("it is not a plain file")
    with _as_ours(), contextlib.closing(_connect_to_read(path)) as database:
        _check(database)
        database.execute("BEGIN")
        yield database


def _raise_if_barred(path: Path, rights: int) -> None:
    """Raises Barred if only another user has the right. Checks the path, since closing a handle of
    the file would end SQLite's locks on it."""
    try:
        owner = os.stat(path).st_uid
    except PermissionError as error:
        raise Barred(f"permission denied; {_ADVICE}") from error
    except OSError:
        return  # SQLite then reports it
    if os.geteuid() not in (0, owner) and not os.access(path, rights):
        raise Barred(f"permission denied; {_ADVICE}, {_name_of(owner)}")


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def used_bytes(database: sqlite3.Connection) -> int:
    """Return the bytes of the tables, without free pages."""
    pages, unused, page = (
        database.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - unused) * page)


def give_back(database: sqlite3.Connection, most: int) -> None:
    """Return at most `most` free pages to the disk."""
    (unused,) = database.execute("PRAGMA freelist_count").fetchone()
    for _ in range(min(unused, most)):  # sqlite3 runs a single step of it, which frees a page
        database.execute("PRAGMA incremental_vacuum")


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """Return a connection to read. A user that may not write beside the file can read it only while
    a tick has it open, or as a file that does not change."""
    last_error = sqlite3.OperationalError()
    for way in ("mode=ro", "mode=ro&immutable=1"):
        uri = f"file:{quote(str(path))}?{way}"
        try:
            database = sqlite3.connect(uri, uri=True, timeout=READ_BUSY_S, isolation_level=None)
            database.execute("PRAGMA user_version").fetchone()
            return database
        except sqlite3.OperationalError as error:
            last_error = error
    raise last_error


def _prepare(database: sqlite3.Connection, max_mib: int) -> None:
    """Set up this connection, and the tables of a new file."""
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute(f"PRAGMA wal_autocheckpoint={PAGES_BEFORE_CHECKPOINT}")
    if _version(database) == 0 and not database.execute("SELECT 1 FROM sqlite_master").fetchone():
        database.execute("PRAGMA auto_vacuum=INCREMENTAL")
        database.execute("PRAGMA journal_mode=WAL")
        names = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={VERSION};"
        database.executescript(f"BEGIN IMMEDIATE; {CREATE} {names} COMMIT;")
    _check(database)
    (page,) = database.execute("PRAGMA page_size").fetchone()
    database.execute(f"PRAGMA max_page_count={max_mib * 2**20 // page}")


def _check(database: sqlite3.Connection) -> None:
    """Raises Damaged for a file of another program or of a later version."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    version = _version(database)
    if (application, version) != (APPLICATION_ID, VERSION):
        wanted = f"not a ledger of version {VERSION}"
        raise Damaged(f"it is {wanted} (found {application:#x}/{version})")


def _version(database: sqlite3.Connection) -> int:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


@contextlib.contextmanager
def _as_ours() -> Iterator[None]:
    """Turn SQLite's errors into ours: Damaged, or Unusable (locked, disk full, no right)."""
    try:
        yield
    except (sqlite3.OperationalError, sqlite3.IntegrityError) as error:
        differs = any(sign in str(error) for sign in _OTHER_TABLES)
        raise (Damaged if differs else Unusable)(str(error)) from error
    except sqlite3.DatabaseError as error:
        raise Damaged(str(error)) from error
    except sqlite3.Error as error:
        raise Unusable(str(error)) from error
