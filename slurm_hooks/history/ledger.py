"""The history of ticks in an SQLite file: a table of events, for the report and the metrics.

A tick only adds events. After an hour, events of jobs without details become their sums over five
minutes, and after a day all over half an hour. After `ledger.keep_days` they are dropped.
`standing` has each sum since the file began, and the present state, so that metrics read few rows.
The ledger decides no question about jobs, and no tick depends on it: the truth is in Slurm. Times
are epoch seconds by slurmctld's clock.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Optional

from slurm_hooks.history.database import Damaged, give_back, used_bytes
from slurm_hooks.history.harvest.events import DRAWN, LONGEST, events_of
from slurm_hooks.history.harvest.jobs import JobLine, lines_after
from slurm_hooks.history.harvest.values import Record, Seen
from slurm_hooks.model.snapshot.codec import from_data, to_data

_log = logging.getLogger(__name__)
DAY_S = 86_400
SUMS = (  # which events become sums, after how many seconds, and over how many: parts of an hour
    ("job > 0", 3600, 300),
    ("job >= 0", DAY_S, 1800),
)
AT_ONCE = 5000  # rows that a tick drops
FULL = 0.9  # of the size allowed: beyond it the oldest events are dropped
_ADDS_UP = (  # also ticks of the same second, by Slurm's clock
    f"DO UPDATE SET value = CASE name WHEN '{LONGEST}' THEN max(value, excluded.value) "
    "ELSE value + excluded.value END"
)
_ADDED_UP = "added_up_timestamp_seconds"  # in `standing`: up to there events have become sums
_Known = dict[int, tuple[int, Optional[JobLine]]]  # key and line by job
TOTAL = f"CASE name WHEN '{LONGEST}' THEN max(value) ELSE sum(value) END"  # of events alike


def last_seen(ledger: sqlite3.Connection) -> Optional[Seen]:
    """Return the memory of the last tick, or None before the first. Raises Damaged."""
    row = ledger.execute("SELECT seen FROM last").fetchone()
    return _value(Seen, row[0]) if row else None


def line_of(row: tuple[Any, ...]) -> Optional[JobLine]:
    """Return the line in a job's row, the account and the line, or None if a later version has
    written what this version cannot read."""
    account, text = row
    try:
        line: JobLine = _value(JobLine, text)
    except Damaged:
        _log.warning("the ledger has a job's line that this version cannot read: %s", text)
        return None
    return replace(line, account=account or "")


def _value(kind: Any, text: str) -> Any:
    try:
        return from_data(kind, json.loads(text))
    except (ValueError, RecursionError) as error:
        raise Damaged(f"it has an unreadable row: {error}") from error


def _text(value: Any) -> str:
    return json.dumps(to_data(value), separators=(",", ":"))


def without_account(ledger: sqlite3.Connection, job_ids: Iterable[int]) -> tuple[int, ...]:
    """Return the jobs whose account the ledger does not know."""
    known = {r[0] for r in ledger.execute("SELECT job_id FROM job WHERE account IS NOT NULL")}
    return tuple(job_id for job_id in job_ids if job_id not in known)


def write(ledger: sqlite3.Connection, record: Record, accounts: Mapping[int, str]) -> None:
    """Add a record. `accounts` has the accounts of jobs that the ledger does not know yet."""
    known = known_lines(ledger, record)
    lines = lines_after({job_id: line for job_id, (_, line) in known.items() if line}, record)
    keys = {
        job_id: _put(ledger, known[job_id][0] if job_id in known else None, line, accounts)
        for job_id, line in lines.items()
    }
    at_s = record.at.timestamp()
    events = list(events_of(record, lines))
    drawn = (event for event in record.standing if event.name in DRAWN)
    ledger.executemany(
        f"INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?) "
        f"ON CONFLICT (at, name, label, job, part) {_ADDS_UP}",
        [
            (e.at_s or at_s, e.name, e.label, keys.get(e.job_id, 0), e.part, e.value, e.more)
            for e in (*events, *drawn)
        ],
    )
    ledger.execute("DELETE FROM standing WHERE NOT adds_up")
    ledger.executemany(
        "INSERT INTO standing VALUES (?, ?, ?, 0)",
        [(e.name, e.label, e.value) for e in record.standing],
    )
    ledger.executemany(
        f"INSERT INTO standing VALUES (?, ?, ?, 1) ON CONFLICT (name, label) {_ADDS_UP}",
        [(e.name, e.label, e.value) for e in events],
    )
    ledger.execute("REPLACE INTO last VALUES (1, ?)", (_text(record.seen),))


def known_lines(ledger: sqlite3.Connection, record: Record) -> _Known:
    """Return key and line of each job of the record that has a line.

    A job with the same number and user is the same job if a tick saw it in the last day or in the
    last tick. Slurm reuses a number only after a long time. The time of submission does not
    identify a job, since a requeue changes it."""
    last = ledger.execute("SELECT value FROM standing WHERE name = 'last_tick_timestamp_seconds'")
    (last_s,) = last.fetchone() or (0.0,)
    since = min(last_s, record.at.timestamp() - DAY_S)
    asked = [(job.job_id, job.user, since) for job in record.jobs]
    asked += [(job.job_id, "", 0.0) for job in record.forgotten]
    rows = (
        ledger.execute(
            "SELECT id, account, line, job_id FROM job WHERE job_id = ?1 "
            "AND (user = ?2 OR ?2 = '') AND last_at >= ?3 ORDER BY id DESC LIMIT 1",
            words,
        ).fetchone()
        for words in asked
    )
    return {row[3]: (row[0], line_of(row[1:3])) for row in rows if row}


def _put(
    ledger: sqlite3.Connection, key: Optional[int], line: JobLine, accounts: Mapping[int, str]
) -> int:
    """Add or replace the row of a job. Return its key."""
    times = (line.first.timestamp(), line.last.timestamp())
    account = accounts.get(line.job_id)
    done = ledger.execute(
        "REPLACE INTO job VALUES (?1, ?2, ?3, "
        "coalesce((SELECT account FROM job WHERE id = ?1), ?4), ?5, ?6, ?7, ?8)",
        (key, line.job_id, line.user, account, *times, line.node_s, _text(line)),
    )
    return int(done.lastrowid or 0)


def prune(ledger: sqlite3.Connection, now_s: float, keep_s: float, max_mib: int) -> None:
    """Add up old events, and drop events older than `keep_s`, and the oldest tenth while the file
    is nearly full.

    The number of rows is bounded, so that a tick does not wait for it.
    """
    for which, after_s, sum_s in SUMS:
        _add_up(ledger, which, now_s - after_s, sum_s)
    since = now_s - keep_s
    if used_bytes(ledger) > FULL * max_mib * 2**20:
        since = max(since, _early(ledger, now_s))
    key = "at, name, label, job, part"
    oldest = f"SELECT {key} FROM event WHERE at < ? ORDER BY at LIMIT ?"
    ledger.execute(f"DELETE FROM event WHERE ({key}) IN ({oldest})", (since, AT_ONCE))
    ledger.execute("DELETE FROM job WHERE last_at < ?", (since,))
    give_back(ledger, AT_ONCE)


def _add_up(ledger: sqlite3.Connection, which: str, before_s: float, sum_s: int) -> None:
    """Replace the events of the next `sum_s` before `before_s` by their sums.

    The events of a tick are from before the tick, so a tick on the hour belongs to the span that
    ends. A tick adds events of few spans, so one a tick is enough. A clock that was ahead and is
    set back moves the end of the sums back."""
    mine = f"WHERE name = '{_ADDED_UP}' AND label = '{which}'"
    ledger.execute(f"UPDATE standing SET value = min(value, ?) {mine}", (before_s,))
    (done_s,) = ledger.execute(f"SELECT value FROM standing {mine}").fetchone() or (0.0,)
    plain = "FROM event WHERE at > ? AND at <= ? AND more = ''"
    first = ledger.execute(f"SELECT at {plain} ORDER BY at LIMIT 1", (done_s, before_s)).fetchone()
    if first is None or (end_s := -(-first[0] // sum_s) * sum_s) > before_s:
        return
    span = (done_s, end_s)
    (last_s,) = ledger.execute(f"SELECT max(at) {plain}", span).fetchone()
    plain = f"{plain} AND {which}"
    sums = ledger.execute(f"SELECT name, label, job, {TOTAL} {plain} GROUP BY 1, 2, 3", span)
    rows = [(last_s, name, label, job, 0, value, "") for name, label, job, value in sums]
    ledger.execute(f"DELETE {plain}", span)
    ledger.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    ledger.execute("REPLACE INTO standing VALUES (?, ?, ?, 1)", (_ADDED_UP, which, end_s))


def _early(ledger: sqlite3.Connection, now_s: float) -> float:
    """Return the end of the oldest tenth of the ledger's span, without ticks from the future (a
    clock was ahead)."""
    question = "SELECT min(at), max(at) FROM event WHERE at <= ?"
    (first, last) = ledger.execute(question, (now_s,)).fetchone()
    return 0.0 if first is None else float(first + (last - first) / 10)
