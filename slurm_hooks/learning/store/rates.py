"""Reads the kept rates of a job."""

from __future__ import annotations

import sqlite3

from slurm_hooks.books.storage.database import Damaged
from slurm_hooks.model import Rate


def rates_of(database: sqlite3.Connection, key: int) -> tuple[Rate, ...]:
    """The rates of the job with this key, in order of time.

    Raises Damaged if a row is malformed.
    """
    rows = database.execute(
        "SELECT nodes, per_s, error, at, batch FROM sample WHERE job = ? ORDER BY at, id", (key,)
    )
    try:
        return tuple(Rate(*row) for row in rows)
    except (TypeError, ValueError) as error:
        raise Damaged(f"a rate of job {key}: {error}") from error
