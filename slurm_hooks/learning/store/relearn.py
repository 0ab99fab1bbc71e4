"""Learns jobs with new reports again, and writes the result for the next tick."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable

from slurm_hooks.learning.drift import current
from slurm_hooks.learning.learned import learn
from slurm_hooks.learning.prior import Fit, fit_of, prior_of
from slurm_hooks.learning.store.codec import fit_from, fit_text, learned_text
from slurm_hooks.learning.store.intake import in_turn
from slurm_hooks.learning.store.rates import rates_of

FAMILY_FITS = 12  # the newest of its family, with which a job is compared
OTHER_FITS, FITS_OF_ONE_USER = (
    40,
    3,
)  # of others, a few of each user, so that no user decides for all
AGAIN_S = 300.0  # other jobs' reports make a job learned again at most so often
_SPEAKS = "fit IS NOT NULL"


def refit(
    database: sqlite3.Connection, now_s: float, has_time: Callable[[], bool]
) -> tuple[int, int]:
    """Learn again each job of this tick that has a new report, or whose family has.

    Jobs that have waited longest come first, and a job of each user before the second of any.
    Return how many were learned, and how many have to wait for lack of time.
    """
    database.row_factory = sqlite3.Row
    due = database.execute(
        "SELECT job.id, job.min_nodes, job.max_nodes, job.fit, family.id AS family, "
        "family.user, family.unit, family.most, "
        "(changed_at > learned_at OR learned_at > :now) AS is_new "  # or a clock was set back
        "FROM job JOIN family ON family.id = job.family WHERE job.last_at = :now "
        "AND (is_new OR (changed_at > 0 AND family.fit_at > learned_at AND learned_at < :before)) "
        "ORDER BY is_new DESC, learned_at, changed_at",
        {"now": now_s, "before": now_s - AGAIN_S},
    ).fetchall()
    if not due:
        return 0, 0
    others = Others(database)
    done = 0
    families = {}
    waiting = in_turn(due, lambda row: str(row["user"]))
    for row in sorted(waiting, key=lambda row: not row["is_new"]):
        if done and not has_time():
            break
        if _refit(database, row, others, now_s):
            families[row["family"]] = row
        done += 1
    for row in families.values():
        _refit_family(database, row, others, now_s)
    return done, len(due) - done


class Others:
    """The newest fits of other families, a few of each user, however many families the user has."""

    def __init__(self, database: sqlite3.Connection) -> None:
        rows = database.execute(
            f"SELECT id, user, fit FROM family WHERE {_SPEAKS} ORDER BY fit_at DESC, id"
        )
        count: Counter[str] = Counter()
        self._fits: list[tuple[int, Fit]] = []
        for row in rows:
            count[row["user"]] += 1
            if count[row["user"]] <= FITS_OF_ONE_USER:
                self._fits.append((row["id"], fit_from(row["fit"])))
            if len(self._fits) > OTHER_FITS:
                break
        rows.close()

    def without(self, family: int) -> tuple[Fit, ...]:
        """The fits without the fits of the given family."""
        return tuple(fit for key, fit in self._fits if key != family)[:OTHER_FITS]


def _refit(database: sqlite3.Connection, row: sqlite3.Row, others: Others, now_s: float) -> bool:
    """Learn a job again. Return whether its fit changed, and so its family's knowledge."""
    rates = current(rates_of(database, row["id"]))
    fit = fit_of(rates, row["unit"])
    family = _family_fits(database, row["family"], without=row["id"])
    prior = prior_of(family, others.without(row["family"]))
    learned = learn(rates, prior, row["unit"], row["max_nodes"], row["min_nodes"])
    text = fit_text(fit) if fit else None
    database.execute(
        "UPDATE job SET fit = ?, learned = ?, learned_at = max(?, changed_at) WHERE id = ?",
        (text, learned_text(learned), now_s, row["id"]),
    )
    return bool(text != row["fit"])


def _refit_family(
    database: sqlite3.Connection, row: sqlite3.Row, others: Others, now_s: float
) -> None:
    """Write the knowledge with which the jobs of a family begin, and its newest fit."""
    fits = _family_fits(database, row["family"])
    prior = prior_of(fits, others.without(row["family"]))
    learned = learn((), prior, row["unit"], row["most"])
    database.execute(
        "UPDATE family SET fit = ?, fit_at = ?, learned = ? WHERE id = ?",
        (fit_text(fits[0]) if fits else None, now_s, learned_text(learned), row["family"]),
    )


def _family_fits(database: sqlite3.Connection, family: int, without: int = 0) -> tuple[Fit, ...]:
    rows = database.execute(
        f"SELECT fit FROM job WHERE family = ? AND {_SPEAKS} AND id != ? "
        "ORDER BY changed_at DESC, id DESC LIMIT ?",
        (family, without, FAMILY_FITS),
    )
    return tuple(fit_from(row["fit"]) for row in rows)
