"""Writes what jobs tell and what is learned from it; drops and forgets."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.advisor.drift import current
from slurm_hooks.advisor.learned import learn
from slurm_hooks.advisor.prior import Fit, fit_of, prior_of
from slurm_hooks.learning.codec import fit_from, fit_text, learned_text
from slurm_hooks.learning.family import Family
from slurm_hooks.learning.intake import Told, news
from slurm_hooks.learning.rates import rates_of
from slurm_hooks.model import Rate

TOGETHER = 400  # jobs asked for in one question
LONGEST_S = 600.0  # between two ticks: nobody knows what a job had in a longer pause
OF_A_SIZE, SIZES = 8, 24  # rates of one job that are kept, the newest
FAMILY_FITS = 12  # of its family that a job is compared with, the newest
OTHER_FITS, FITS_OF_ONE_USER = 40, 3  # of others; a few of each, so that nobody speaks for all
AGAIN_S = 300.0  # a job is learned again at most so often because of others
AT_ONCE = 500  # jobs that one tick drops
GONE_S = 3600.0  # a job that no tick has seen for so long is over, or nearly
FULL = 0.9  # of the size allowed: from here on the oldest jobs go
USER_JOBS = 2000  # of one user that are kept, the newest
_SPEAKS = "fit IS NOT NULL"


@dataclass(frozen=True)
class Present:
    """A job that a tick has seen. `is_probing` is true if it is about to get nodes only to be
    looked at on them; `told` is None if it told nothing."""

    job_id: int
    family: Family
    min_nodes: int
    max_nodes: int
    nodes: int
    is_probing: bool = False
    told: Optional[Told] = None


def put(database: sqlite3.Connection, jobs: Sequence[Present], now_s: float) -> None:
    """Write down which jobs there are, what they had since the last tick, what they tell."""
    database.row_factory = sqlite3.Row
    families = {f: _family(database, f, now_s) for f in dict.fromkeys(j.family for j in jobs)}
    known = _known(database, jobs)
    changes = []
    for job in jobs:
        row = known.get((job.job_id, families[job.family]))
        key = row["id"] if row else _add_job(database, job, families[job.family], now_s)
        if row:
            changes.append(_change(row, job, now_s))
        if job.told is not None and job.told.digest != (row["told"] if row else ""):
            _put_told(database, key, job.told, now_s)
    database.executemany(
        "UPDATE job SET last_at = ?, nodes = ?, is_probing = ?, node_s = node_s + ?, "
        "probed_node_s = probed_node_s + ? WHERE id = ?",
        changes,
    )


def _known(
    database: sqlite3.Connection, jobs: Sequence[Present]
) -> dict[tuple[int, int], sqlite3.Row]:
    """Rows by job id and family; there may be others of the same ids."""
    found = {}
    for begin in range(0, len(jobs), TOGETHER):
        some = [job.job_id for job in jobs[begin : begin + TOGETHER]]
        rows = database.execute(
            "SELECT id, job_id, family, last_at, nodes, is_probing, told FROM job "
            f"WHERE job_id IN ({', '.join('?' * len(some))})",
            some,
        )
        found.update({(row["job_id"], row["family"]): row for row in rows})
    return found


def _change(row: sqlite3.Row, job: Present, now_s: float) -> tuple[float, ...]:
    """What it had since the last tick, as its row takes it."""
    had = row["nodes"] * min(max(now_s - row["last_at"], 0.0), LONGEST_S)
    return (now_s, job.nodes, job.is_probing, had, had * row["is_probing"], row["id"])


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
    _make_room(database, job.family.user, now_s)
    row = (job.job_id, family, job.min_nodes, job.max_nodes, now_s, now_s, job.nodes)
    added = database.execute(
        "INSERT INTO job (job_id, family, min_nodes, max_nodes, first_at, last_at, nodes, "
        "is_probing, node_s, probed_node_s, told, counts, changed_at, learned_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, '', '', 0, 0)",
        (*row, job.is_probing),
    )
    return int(added.lastrowid or 0)


def _make_room(database: sqlite3.Connection, user: str, now_s: float) -> None:
    """A user who submits very many jobs pushes out his own oldest ones, not those of others."""
    jobs = "FROM job JOIN family ON family.id = family WHERE user = ?"
    (count,) = database.execute(f"SELECT count(*) {jobs}", (user,)).fetchone()
    if count >= USER_JOBS:
        oldest = f"SELECT job.id {jobs} AND job.last_at < ? ORDER BY job.last_at LIMIT 100"
        _drop(database, [row[0] for row in database.execute(oldest, (user, now_s))])


def _put_told(database: sqlite3.Connection, key: int, told: Told, now_s: float) -> None:
    _drop_other_counts(database, key, told)
    kept = rates_of(database, key)
    new = news(told, kept, int(now_s))
    _add_rates(database, key, new.rates)
    _drop_rates(database, key)
    pauses = told.pauses
    database.execute(
        "UPDATE job SET told = ?, counts = ?, sync = ?, start_s = ?, grow_s = ?, shrink_s = ?, "
        "hit_s = ?, changed_at = CASE WHEN ? THEN ? ELSE changed_at END WHERE id = ?",
        (
            *(told.digest if new.is_all else "", told.counts.value, told.sync),
            *(pauses.start_s, pauses.grow_s, pauses.shrink_s, pauses.hit_s),
            *(bool(new.rates), now_s, key),
        ),
    )


def _drop_other_counts(database: sqlite3.Connection, key: int, told: Told) -> None:
    """Steps and samples cannot be compared."""
    (counts,) = database.execute("SELECT counts FROM job WHERE id = ?", (key,)).fetchone()
    if counts and counts != told.counts.value:
        database.execute("DELETE FROM sample WHERE job = ?", (key,))


def _add_rates(database: sqlite3.Connection, key: int, rates: Sequence[Rate]) -> None:
    database.executemany(
        "INSERT INTO sample (job, nodes, at, per_s, error, batch) VALUES (?, ?, ?, ?, ?, ?)",
        [(key, r.nodes, r.at, r.per_s, r.error, r.batch) for r in rates],
    )


def _drop_rates(database: sqlite3.Connection, key: int) -> None:
    """The oldest ones of each size, and of the sizes that were seen longest ago all."""
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


def refit(
    database: sqlite3.Connection, now_s: float, has_time: Callable[[], bool]
) -> tuple[int, int]:
    """Learn the jobs of this tick anew that have shown something, or whose family has; those that
    wait longest first. How many were learned, and how many have to wait for want of time."""
    database.row_factory = sqlite3.Row
    due = database.execute(
        "SELECT job.id, job.min_nodes, job.max_nodes, job.fit, family.id AS family, "
        "family.unit, family.most, job.changed_at > job.learned_at AS is_new "
        "FROM job JOIN family ON family.id = job.family WHERE job.last_at = ? "
        "AND (changed_at > learned_at OR "
        "(changed_at > 0 AND family.fit_at > learned_at AND learned_at < ?)) "
        "ORDER BY is_new DESC, learned_at, changed_at",
        (now_s, now_s - AGAIN_S),
    ).fetchall()
    if not due:
        return 0, 0
    others = _Others(database)
    done = 0
    families = {}
    for row in due:
        if done and not has_time():
            break
        if _refit(database, row, others, now_s):
            families[row["family"]] = row
        done += 1
    for row in families.values():
        _refit_family(database, row, others, now_s)
    return done, len(due) - done


class _Others:
    """The newest fits of other families, a few of each user."""

    def __init__(self, database: sqlite3.Connection) -> None:
        rows = database.execute(
            f"SELECT id, user, fit FROM family WHERE {_SPEAKS} ORDER BY fit_at DESC, id LIMIT 400"
        ).fetchall()
        self._fits = [(row["id"], row["user"], fit_from(row["fit"])) for row in rows]

    def but(self, family: int) -> tuple[Fit, ...]:
        """Without those of one family."""
        count: dict[str, int] = {}
        chosen = []
        for key, user, fit in self._fits:
            count[user] = count.get(user, 0) + 1
            if key != family and count[user] <= FITS_OF_ONE_USER:
                chosen.append(fit)
        return tuple(chosen[:OTHER_FITS])


def _refit(database: sqlite3.Connection, row: sqlite3.Row, others: _Others, now_s: float) -> bool:
    """Learn one job anew; true if its fit, and so what its family begins with, is another."""
    rates = current(rates_of(database, row["id"]))
    fit = fit_of(rates, row["unit"])
    family = _family_fits(database, row["family"], but=row["id"])
    prior = prior_of(family, others.but(row["family"]))
    learned = learn(rates, prior, row["unit"], row["max_nodes"], row["min_nodes"])
    text = fit_text(fit) if fit else None
    database.execute(
        "UPDATE job SET fit = ?, learned = ?, learned_at = ? WHERE id = ?",
        (text, learned_text(learned), now_s, row["id"]),
    )
    return bool(text != row["fit"])


def _refit_family(
    database: sqlite3.Connection, row: sqlite3.Row, others: _Others, now_s: float
) -> None:
    """What the jobs of a family begin with, and its newest fit."""
    fits = _family_fits(database, row["family"])
    prior = prior_of(fits, others.but(row["family"]))
    learned = learn((), prior, row["unit"], row["most"])
    database.execute(
        "UPDATE family SET fit = ?, fit_at = ?, learned = ? WHERE id = ?",
        (fit_text(fits[0]) if fits else None, now_s, learned_text(learned), row["family"]),
    )


def _family_fits(database: sqlite3.Connection, family: int, but: int = 0) -> tuple[Fit, ...]:
    rows = database.execute(
        f"SELECT fit FROM job WHERE family = ? AND {_SPEAKS} AND id != ? "
        "ORDER BY changed_at DESC, id DESC LIMIT ?",
        (family, but, FAMILY_FITS),
    )
    return tuple(fit_from(row["fit"]) for row in rows)


def prune(database: sqlite3.Connection, now_s: float, keep_s: float, max_mib: int) -> None:
    """Drop jobs that no tick has seen for so long, and the oldest while the file is nearly full.

    A bounded number each time: a tick must not wait for it.
    """
    since = now_s - keep_s
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    (unused,) = database.execute("PRAGMA freelist_count").fetchone()
    (page,) = database.execute("PRAGMA page_size").fetchone()
    is_full = (pages - unused) * page > FULL * max_mib * 2**20
    old = f"SELECT id FROM job WHERE last_at < ? ORDER BY last_at LIMIT {AT_ONCE}"
    before = now_s - GONE_S if is_full else since
    gone = [row[0] for row in database.execute(old, (before,))]
    _drop(database, gone)
    if gone:
        database.execute(
            "DELETE FROM family WHERE last_at < ? AND id NOT IN (SELECT family FROM job)", (now_s,)
        )
    for _ in range(min(unused, AT_ONCE)):
        database.execute("PRAGMA incremental_vacuum")


def _drop(database: sqlite3.Connection, jobs: Sequence[int]) -> None:
    keys = [(key,) for key in jobs]
    database.executemany("DELETE FROM sample WHERE job = ?", keys)
    database.executemany("DELETE FROM job WHERE id = ?", keys)


def forget(database: sqlite3.Connection, user: str, name: Optional[str] = None) -> int:
    """Drop all that is known of a user's jobs, or of those of one name; how many jobs that were."""
    chosen = "user = :user AND (:name IS NULL OR name = :name)"
    values = {"user": user, "name": name}
    rows = database.execute(
        f"SELECT job.id FROM job JOIN family ON family.id = family WHERE {chosen}", values
    )
    jobs = [row[0] for row in rows]
    _drop(database, jobs)
    database.execute(f"DELETE FROM family WHERE {chosen}", values)
    return len(jobs)
