"""Drops old knowledge, and knowledge that a user wants to be forgotten."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Optional

from slurm_hooks.books.storage.database import give_back, used_bytes

AT_ONCE = 500  # jobs that a tick drops
GONE_S = 3600.0  # a job that no tick has seen for so long is over, or nearly
FULL = 0.9  # of the allowed size. From here on the oldest jobs are dropped


def prune(database: sqlite3.Connection, now_s: float, keep_s: float, max_mib: int) -> None:
    """Drop jobs that no tick has seen for so long, and the oldest while the file is nearly full.

    Each call drops a bounded number, since a tick must not wait for it.
    """
    since = now_s - keep_s
    is_full = used_bytes(database) > FULL * max_mib * 2**20
    old = f"SELECT id FROM job WHERE last_at < ? ORDER BY last_at LIMIT {AT_ONCE}"
    before = now_s - GONE_S if is_full else since
    gone = [row[0] for row in database.execute(old, (before,))]
    drop(database, gone)
    if gone:
        database.execute(
            "DELETE FROM family WHERE last_at < ? AND id NOT IN (SELECT family FROM job)", (now_s,)
        )
    give_back(database, AT_ONCE)


def drop(database: sqlite3.Connection, jobs: Sequence[int]) -> None:
    """Drop jobs by their keys, with all their reports."""
    keys = [(key,) for key in jobs]
    database.executemany("DELETE FROM sample WHERE job = ?", keys)
    database.executemany("DELETE FROM job WHERE id = ?", keys)


def forget(database: sqlite3.Connection, user: str, name: Optional[str] = None) -> int:
    """Drop all knowledge of a user's jobs, or of those with a given name.

    Return the number of jobs.
    """
    database.execute("PRAGMA secure_delete=ON")  # the default of most builds of SQLite
    chosen = "user = :user AND (:name IS NULL OR name = :name)"
    values = {"user": user, "name": name}
    rows = database.execute(
        f"SELECT job.id FROM job JOIN family ON family.id = family WHERE {chosen}", values
    )
    jobs = [row[0] for row in rows]
    drop(database, jobs)
    database.execute(f"DELETE FROM family WHERE {chosen}", values)
    return len(jobs)
