"""Writes the record of a tick, and drops old rows."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Optional

from slurm_hooks.books.harvest.codec import to_text
from slurm_hooks.books.harvest.values import JobFacts, Record
from slurm_hooks.books.ledger.schema import HOUR_S, hour_of
from slurm_hooks.books.storage.database import give_back, used_bytes
from slurm_hooks.model import Why

DAY_S = 86_400
AT_ONCE = 2000  # rows that a tick drops of each table
FULL = 0.9  # of the size allowed: beyond it the oldest ticks are dropped


def write(ledger: sqlite3.Connection, record: Record, accounts: Mapping[int, str]) -> None:
    """Add a record. `accounts` has the accounts of jobs that the ledger does not know yet."""
    keys = _put_jobs(ledger, record, accounts)
    forgotten = _put_forgotten(ledger, record)
    _put_tick(ledger, record)
    _put_whys(ledger, record)
    _put_harvest(ledger, record, keys, forgotten)
    keys.update((each.job_id, each.key) for each in forgotten)
    _put_endings(ledger, record, keys)
    ledger.executemany(
        "INSERT INTO delay (at, other, planned, started, held_s) VALUES (?, ?, ?, ?, ?)",
        [
            (_at(record), d.job_id, d.planned.timestamp(), d.started.timestamp(), d.held_s)
            for d in record.delays
        ],
    )
    ledger.executemany(
        "INSERT INTO counter VALUES (?, ?, ?) "
        "ON CONFLICT (name, label) DO UPDATE SET value = value + excluded.value",
        list(_counts(record, forgotten)),
    )
    ledger.execute("REPLACE INTO last VALUES (1, ?)", (to_text(record.seen),))


def prune(ledger: sqlite3.Connection, now_s: float, keep_s: float, max_mib: int) -> None:
    """Drop rows older than `keep_s`, and the oldest tenth while the file is nearly full.

    The number of rows is bounded, so that a tick does not wait for it.
    """
    since = now_s - keep_s
    if used_bytes(ledger) > FULL * max_mib * 2**20:
        since = max(since, _early(ledger, now_s))
    old = f"SELECT id FROM tick WHERE at < ? ORDER BY at LIMIT {AT_ONCE}"
    for table in ("idle", "unused", "done"):
        ledger.execute(f"DELETE FROM {table} WHERE tick IN ({old})", (since,))
    for table in ("tick", "ending", "delay"):
        rows = f"SELECT id FROM {table} WHERE at < ? ORDER BY at LIMIT {AT_ONCE}"
        ledger.execute(f"DELETE FROM {table} WHERE id IN ({rows})", (since,))
    ledger.execute("DELETE FROM harvest WHERE hour < ?", (int(since // HOUR_S),))
    ledger.execute("DELETE FROM job WHERE last_at < ?", (since,))
    give_back(ledger, AT_ONCE)


def _early(ledger: sqlite3.Connection, now_s: float) -> float:
    """Return the end of the oldest tenth of the ledger's span, without ticks from the future (a
    clock was ahead)."""
    question = "SELECT min(at), max(at) FROM tick WHERE at <= ?"
    (first, last) = ledger.execute(question, (now_s,)).fetchone()
    return 0.0 if first is None else float(first + (last - first) / 10)


def _at(record: Record) -> float:
    return record.at.timestamp()


def _put_tick(ledger: sqlite3.Connection, record: Record) -> None:
    nodes, cost = record.nodes, record.cost
    row = (
        *(_at(record), record.span_s, record.unseen_s, record.node_s, record.uncertain_node_s),
        *(len(record.jobs), nodes.total, nodes.ours, nodes.busy, nodes.out),
        *(cost.seconds, cost.solver_s, cost.commands, cost.rpcs, cost.refused, record.starts),
        *(record.no_growth_s, record.core_node_s),
    )
    done = ledger.execute(f"INSERT INTO tick VALUES (NULL, {', '.join('?' * len(row))})", row)
    ledger.executemany(
        "INSERT INTO idle VALUES (?, ?, ?, ?)",
        [(done.lastrowid, reason.value, now, node_s) for reason, now, node_s in record.idle],
    )
    ledger.executemany(
        "INSERT INTO unused VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (done.lastrowid, name, *astuple(now), *astuple(past))
            for name, now, past in record.unused
        ],
    )
    ledger.executemany(
        "INSERT INTO done VALUES (?, ?, ?, ?)",
        [(done.lastrowid, row.verb, row.cause, row.fragments) for row in record.done],
    )


def _put_whys(ledger: sqlite3.Connection, record: Record) -> None:
    ledger.execute("DELETE FROM why")
    rows = [(why.value, jobs) for why, jobs in record.whys]
    ledger.executemany("INSERT INTO why VALUES (?, ?)", rows)


@dataclass(frozen=True)
class _Forgotten:
    """A job that only the ledger still knows, and its usage up to its end."""

    job_id: int
    key: int
    user: str
    node_s: float
    how: Why


def _put_forgotten(ledger: sqlite3.Connection, record: Record) -> tuple[_Forgotten, ...]:
    known = []
    for job in record.forgotten:
        question = "SELECT id, user FROM job WHERE job_id = ? ORDER BY id DESC LIMIT 1"
        for key, user in ledger.execute(question, (job.job_id,)).fetchall():
            known.append(_Forgotten(job.job_id, key, user, job.node_s, job.how))
    ledger.executemany(
        "UPDATE job SET node_s = node_s + ?, "
        "over = CASE over WHEN '' THEN ? ELSE over END WHERE id = ?",
        [(each.node_s, each.how.value, each.key) for each in known],
    )
    return tuple(known)


def _put_jobs(
    ledger: sqlite3.Connection, record: Record, accounts: Mapping[int, str]
) -> dict[int, int]:
    """Add or update all jobs. Return their keys."""
    interruptions = Counter(e.fragment.job_id for e in record.endings if e.is_interruption)
    (last_s,) = ledger.execute("SELECT at FROM tick ORDER BY id DESC LIMIT 1").fetchone() or (0.0,)
    at = _at(record)
    since = min(last_s, at - DAY_S)
    keys = {}
    for job in record.jobs:
        key = keys[job.job_id] = _key_of(ledger, job, at, since)
        _put_job(ledger, key, at, job, interruptions[job.job_id], accounts.get(job.job_id))
    return keys


def _put_job(
    ledger: sqlite3.Connection,
    key: int,
    at: float,
    job: JobFacts,
    interruptions: int,
    account: Optional[str],
) -> None:
    over = job.over.value if job.over else ""
    ledger.execute(
        "UPDATE job SET last_at = ?, "
        "over = CASE WHEN ? = '' OR over IN ('', ?) THEN ? ELSE over END, "
        "stop = coalesce(nullif(?, ''), stop), "
        "node_s = node_s + ?, releases = releases + ?, interruptions = interruptions + ?, "
        "account = coalesce(account, ?), most = max(most, ?), "
        "least = CASE WHEN least = 0 OR (? > 0 AND ? < least) THEN ? ELSE least END WHERE id = ?",
        (
            *(at, over, Why.ENDED.value, over, job.stop),
            *(job.node_s, job.releases, interruptions, account),
            *(job.nodes, job.nodes, job.nodes, job.nodes, key),
        ),
    )


def _key_of(ledger: sqlite3.Connection, job: JobFacts, at: float, since: float) -> int:
    """Return the key of a job, after adding a new job.

    A job with the same number and user is the same job if a tick saw it at `since` or later: in the
    last day or in the last tick. Slurm reuses a number only after a long time. The time of
    submission does not identify a job, since a requeue changes it."""
    known = ledger.execute(
        "SELECT id FROM job WHERE job_id = ? AND user = ? AND last_at >= ? ORDER BY id DESC",
        (job.job_id, job.user, since),
    ).fetchone()
    if known:
        return int(known[0])
    sizes = (job.min_nodes, job.max_nodes, job.unit)
    row = (job.job_id, job.user, *sizes, job.engine, at, at)
    added = ledger.execute(
        "INSERT INTO job VALUES (NULL, ?, ?, NULL, ?, ?, ?, ?, ?, ?, '', '', 0, 0, 0, 0, 0)", row
    )
    return int(added.lastrowid or 0)


def _put_harvest(
    ledger: sqlite3.Connection,
    record: Record,
    keys: Mapping[int, int],
    forgotten: Iterable[_Forgotten],
) -> None:
    hour = hour_of(_at(record))
    rows = [(keys[job.job_id], job.node_s, job.releases) for job in record.jobs]
    rows += [(each.key, each.node_s, 0) for each in forgotten]
    ledger.executemany(
        "INSERT INTO harvest VALUES (?, ?, ?, ?) ON CONFLICT (hour, job) DO UPDATE SET "
        "node_s = node_s + excluded.node_s, releases = releases + excluded.releases",
        [(hour, *row) for row in rows if any(row[1:])],
    )


def _put_endings(ledger: sqlite3.Connection, record: Record, keys: Mapping[int, int]) -> None:
    ledger.executemany(
        "INSERT INTO ending (at, job, fragment, kind, cause, nodes, ran_s, exact, "
        "taken, taker) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                *(e.at.timestamp(), keys.get(e.fragment.job_id, 0), e.fragment.index),
                *(e.kind.value, e.cause[:80], e.nodes, e.ran_s, e.is_exact),
                *(" ".join(sorted(e.taken)), e.taker),
            )
            for e in record.endings
        ],
    )


def _counts(record: Record, forgotten: Iterable[_Forgotten]) -> Iterator[tuple[str, str, float]]:
    """Yield the growth of each counter, with its name (no prefix, no `_total`) and its label."""
    cost = record.cost
    used = [(job.user, job.node_s) for job in record.jobs]
    used += [(each.user, each.node_s) for each in forgotten]
    yield from _by_label("harvested_node_seconds", used)
    yield from (("idle_node_seconds", reason.value, s) for reason, _, s in record.idle)
    for name, _, past in record.unused:
        yield from ((f"unused_{name}_seconds", where, s) for where, s in asdict(past).items())
    yield "releases", "", sum(job.releases for job in record.jobs)
    yield from _by_label("ends", ((e.kind.value, 1) for e in record.endings))
    lost = ((e.kind.value, e.node_s) for e in record.endings if e.is_interruption)
    yield from _by_label("interrupted_node_seconds", lost)
    yield "promised_starts", "", record.starts
    held = [d for d in record.delays if d.held_s > 0]
    yield "delayed_jobs", "", len(held)
    yield "delay_seconds", "", sum(d.held_s for d in held)
    yield from (("ticks", "", 1), ("tick_seconds", "", cost.seconds))
    yield from (("commands", "", cost.commands), ("rpcs", "", cost.rpcs))
    yield "core_node_seconds", "", record.core_node_s
    yield from (("refused", "", cost.refused), ("unseen_seconds", "", record.unseen_s))


def _by_label(name: str, pairs: Iterable[tuple[str, float]]) -> Iterator[tuple[str, str, float]]:
    sums: dict[str, float] = {}
    for label, value in pairs:
        sums[label] = sums.get(label, 0.0) + value
    return ((name, label, value) for label, value in sums.items())
