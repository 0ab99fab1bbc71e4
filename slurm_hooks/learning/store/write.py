"""Writes down the present jobs and their reports."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.learning.store.drop import drop
from slurm_hooks.learning.store.family import Family
from slurm_hooks.learning.store.intake import JobReport, news
from slurm_hooks.learning.store.rates import rates_of
from slurm_hooks.model import Rate

TOGETHER = 400  # jobs in a query
LONGEST_S = 600.0  # between two ticks. In a longer gap a job's nodes are unknown
OF_A_SIZE, SIZES = 8, 24  # the newest rates of a job, which are kept
USER_JOBS = 2000  # the newest of a user, which are kept
PUSHED_OUT = 100  # of them at once
_OF_USER = "FROM job JOIN family ON family.id = family WHERE user = ?"


@dataclass(frozen=True)
class Present:
    """A job that a tick has seen. `report` is None without a report."""

    job_id: int
    family: Family
    min_nodes: int
    max_nodes: int
    nodes: int
    report: Optional[JobReport] = None


def put(database: sqlite3.Connection, jobs: Sequence[Present], now_s: float) -> None:
    """Write down the present jobs, their nodes since the last tick, and their reports."""
    database.row_factory = sqlite3.Row
    families = {f: _family(database, f, now_s) for f in dict.fromkeys(j.family for j in jobs)}
    known = _known(database, jobs)
    rows = [known.get((job.job_id, families[job.family])) for job in jobs]
    database.executemany(
        "UPDATE job SET last_at = ?, nodes = ?, node_s = node_s + ? WHERE id = ?",
        [_change(row, job, now_s) for row, job in zip(rows, jobs) if row],
    )
    room = _Room(database, now_s)
    for row, job in zip(rows, jobs):
        if not row and not room.is_made_for(job.family.user):
            continue
        key = row["id"] if row else _add_job(database, job, families[job.family], now_s)
        if job.report is not None and job.report.digest != (row["digest"] if row else ""):
            _put_report(database, key, job.report, now_s)


def _known(
    database: sqlite3.Connection, jobs: Sequence[Present]
) -> dict[tuple[int, int], sqlite3.Row]:
    """Rows by job id and family. There may be other rows with the same ids."""
    rows_by_job = {}
    for begin in range(0, len(jobs), TOGETHER):
        some = [job.job_id for job in jobs[begin : begin + TOGETHER]]
        rows = database.execute(
            "SELECT id, job_id, family, last_at, nodes, digest FROM job "
            f"WHERE job_id IN ({', '.join('?' * len(some))})",
            some,
        )
        rows_by_job.update({(row["job_id"], row["family"]): row for row in rows})
    return rows_by_job


def _change(row: sqlite3.Row, job: Present, now_s: float) -> tuple[float, ...]:
    """Its node-seconds since the last tick, as its row takes them."""
    had = row["nodes"] * min(max(now_s - row["last_at"], 0.0), LONGEST_S)
    return (now_s, job.nodes, had, row["id"])


def _family(database: sqlite3.Connection, family: Family, now_s: float) -> int:
    key = (family.user, family.name, family.unit, family.engine, family.needs)
    row = database.execute(
        "SELECT id FROM family WHERE (user, name, unit, engine, needs) = (?, ?, ?, ?, ?)", key
    ).fetchone()
    if row:
        database.execute("UPDATE family SET last_at = ? WHERE id = ?", (now_s, row["id"]))
        return int(row["id"])
    added = database.execute(
        "INSERT INTO family (user, name, unit, engine, needs, most, last_at, fit_at) "
        "VALUES (?, ?, ?, ?, ?, 0, ?, 0)",
        (*key, now_s),
    )
    return int(added.lastrowid or 0)


def _add_job(database: sqlite3.Connection, job: Present, family: int, now_s: float) -> int:
    database.execute("UPDATE family SET most = max(most, ?) WHERE id = ?", (job.max_nodes, family))
    row = (job.job_id, family, job.min_nodes, job.max_nodes, now_s, now_s, job.nodes)
    added = database.execute(
        "INSERT INTO job (job_id, family, min_nodes, max_nodes, first_at, last_at, nodes, "
        "node_s, digest, counts, changed_at, learned_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, 0, '', '', 0, 0)",
        row,
    )
    return int(added.lastrowid or 0)


class _Room:
    """Makes room for new jobs.

    A user with very many jobs pushes out only the user's own oldest jobs, and no job that this tick
    has seen.
    """

    def __init__(self, database: sqlite3.Connection, now_s: float) -> None:
        self._database, self._now_s = database, now_s
        self._left: dict[str, int] = {}
        self._full: set[str] = set()

    def is_made_for(self, user: str) -> bool:
        """Tell whether another job of this user can be kept.

        It cannot if the user has reached the limit, and this tick has seen all of them.
        """
        if user not in self._left:
            (count,) = self._database.execute(f"SELECT count(*) {_OF_USER}", (user,)).fetchone()
            self._left[user] = USER_JOBS - count
        if self._left[user] < 1 and user not in self._full:
            self._left[user] += self._push_out(user)
        if self._left[user] < 1:
            self._full.add(user)
            return False
        self._left[user] -= 1
        return True

    def _push_out(self, user: str) -> int:
        most = PUSHED_OUT - min(self._left[user], 0)
        oldest = f"SELECT job.id {_OF_USER} AND job.last_at != ? ORDER BY job.last_at LIMIT ?"
        gone = [row[0] for row in self._database.execute(oldest, (user, self._now_s, most))]
        drop(self._database, gone)
        self._database.execute(
            "DELETE FROM family WHERE user = ? AND last_at != ? "
            "AND NOT EXISTS (SELECT 1 FROM job WHERE job.family = family.id)",
            (user, self._now_s),
        )
        return len(gone)


def _put_report(database: sqlite3.Connection, key: int, report: JobReport, now_s: float) -> None:
    _drop_other_counts(database, key, report)
    _follow_clock(database, key, int(now_s))
    kept = rates_of(database, key)
    new = news(report, kept, int(now_s))
    _add_rates(database, key, new.rates)
    _drop_rates(database, key)
    pauses = report.pauses
    database.execute(
        "UPDATE job SET digest = ?, counts = ?, sync = ?, start_s = ?, grow_s = ?, shrink_s = ?, "
        "loss_s = ?, changed_at = CASE WHEN ? THEN max(?, learned_at + 1) ELSE changed_at END "
        "WHERE id = ?",
        (
            *(report.digest if new.is_all else "", report.counts.value, report.sync),
            *(pauses.start_s, pauses.grow_s, pauses.shrink_s, pauses.loss_s),
            *(bool(new.rates), now_s, key),
        ),
    )


def _drop_other_counts(database: sqlite3.Connection, key: int, report: JobReport) -> None:
    """Drop the old rates if the job now counts steps instead of samples, or the reverse."""
    (counts,) = database.execute("SELECT counts FROM job WHERE id = ?", (key,)).fetchone()
    if counts and counts != report.counts.value:
        database.execute("DELETE FROM sample WHERE job = ?", (key,))


def _follow_clock(database: sqlite3.Connection, key: int, now_s: int) -> None:
    """After the clock was set back, date the newest old rate to now.

    Otherwise no rate would be newer until the clock has caught up.
    """
    (last,) = database.execute("SELECT max(at) FROM sample WHERE job = ?", (key,)).fetchone()
    if last is not None and last > now_s:
        ahead = last - now_s
        database.execute("UPDATE sample SET at = at - ? WHERE job = ?", (ahead, key))


def _add_rates(database: sqlite3.Connection, key: int, rates: Sequence[Rate]) -> None:
    database.executemany(
        "INSERT INTO sample (job, nodes, at, per_s, error, batch) VALUES (?, ?, ?, ?, ?, ?)",
        [(key, r.nodes, r.at, r.per_s, r.error, r.batch) for r in rates],
    )


def _drop_rates(database: sqlite3.Connection, key: int) -> None:
    """Drop the oldest rates of each size, and all rates of the sizes not seen for longest."""
    rows = database.execute(
        "SELECT id, nodes FROM sample WHERE job = ? ORDER BY at DESC, id DESC", (key,)
    )
    count: dict[int, int] = {}
    gone = []
    for row in rows:
        count[row["nodes"]] = count.get(row["nodes"], 0) + 1
        if count[row["nodes"]] > OF_A_SIZE or len(count) > SIZES:
            gone.append((row["id"],))
    database.executemany("DELETE FROM sample WHERE id = ?", gone)
