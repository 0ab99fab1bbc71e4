"""Reads the learned knowledge, for a tick and for people."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Optional

from slurm_hooks.learning.drift import current
from slurm_hooks.learning.store.codec import learned_from, shortened
from slurm_hooks.learning.store.family import Family, family_of
from slurm_hooks.learning.store.profile import FamilyProfile, JobProfile
from slurm_hooks.learning.store.rates import rates_of
from slurm_hooks.model import Counts, Learned, MalleableJob, Pauses, Snapshot
from slurm_hooks.model.gpu_types import GpuTypes

TOGETHER = 400  # jobs in a query
SILENT_NODE_S = 3600.0  # by then a family that reports rates has reported
MOST = 500  # lines for people, the newest
_COLUMNS = "user, name, unit, engine, needs"


def learned_of(database: sqlite3.Connection, seen: Snapshot) -> dict[int, Learned]:
    """Return the knowledge about these jobs. A job without reports has its family's.

    A job that has changed to another type of GPU has no reports on it yet. Jobs of families that
    never report are left out, since waiting for them is in vain. Raises Damaged if the file is
    malformed.
    """
    jobs, types = seen.jobs, GpuTypes(seen.nodes)
    families = {job.job_id: family_of(job, types.of(job)) for job in jobs}
    learned: dict[int, Learned] = {}
    for row in _job_rows(database, families):
        job_id, text, *key = row
        if text and Family(*key) == families[job_id]:
            learned[job_id] = learned_from(text)
    missing = [job for job in jobs if job.job_id not in learned]
    begun = _of_families(database, {families[job.job_id] for job in missing})
    for job in missing:
        known = begun[families[job.job_id]]
        if known is not None:
            learned[job.job_id] = _for_job(known, job)
    return learned


def _job_rows(database: sqlite3.Connection, job_ids: Iterable[int]) -> Iterator[Any]:
    waiting = iter(job_ids)
    while some := tuple(islice(waiting, TOGETHER)):
        yield from database.execute(
            f"SELECT job_id, job.learned, {_COLUMNS} FROM job "
            f"JOIN family ON family.id = family WHERE job_id IN ({', '.join('?' * len(some))})",
            some,
        )


def _of_families(
    database: sqlite3.Connection, families: Iterable[Family]
) -> dict[Family, Optional[Learned]]:
    """The knowledge with which their jobs begin. None if no job of the family ever reported."""
    learned: dict[Family, Optional[Learned]] = {}
    for family in families:
        row = database.execute(
            f"SELECT id, learned FROM family WHERE ({_COLUMNS}) = (?, ?, ?, ?, ?)",
            (family.user, family.name, family.unit, family.engine, family.needs),
        ).fetchone()
        if row and row[1]:
            learned[family] = learned_from(row[1])
        else:
            learned[family] = None if row and _is_silent(database, row[0]) else Learned()
    return learned


def _is_silent(database: sqlite3.Connection, family: int) -> bool:
    changed_at, node_s = database.execute(
        "SELECT max(changed_at), sum(node_s) FROM job WHERE family = ?", (family,)
    ).fetchone()
    return bool(changed_at == 0 and node_s > SILENT_NODE_S)


def _for_job(known: Learned, job: MalleableJob) -> Learned:
    most = job.request.max_nodes
    plausible = (shortened(curve, most) for curve in known.plausible)
    return replace(
        known,
        curve=shortened(known.curve, most),
        plausible=tuple(curve for curve in plausible if curve),
    )


def job_profile(database: sqlite3.Connection, job_id: int) -> Optional[JobProfile]:
    """The profile of the newest job with this id. None without records."""
    row = database.execute(
        f"{_JOB} WHERE job_id = ? ORDER BY job.last_at DESC, job.id DESC LIMIT 1", (job_id,)
    ).fetchone()
    return _job_profile(database, row) if row else None


def job_profiles(
    database: sqlite3.Connection, name: str = "", user: str = ""
) -> tuple[JobProfile, ...]:
    """The profiles of jobs, of families of this name or user if given, the newest first."""
    rows = database.execute(
        f"{_JOB} WHERE (? = '' OR name = ?) AND (? = '' OR user = ?) "
        f"ORDER BY job.last_at DESC, job.id DESC LIMIT {MOST}",
        (name, name, user, user),
    ).fetchall()
    return tuple(_job_profile(database, row) for row in rows)


def family_profiles(
    database: sqlite3.Connection, name: str = "", user: str = ""
) -> tuple[FamilyProfile, ...]:
    """The profiles of families, of this name or user if given, the newest first."""
    rows = database.execute(
        f"SELECT {_COLUMNS}, learned, last_at, most, (SELECT count(*) FROM job WHERE family = "
        "family.id), (SELECT count(*) FROM job WHERE family = family.id AND fit IS NOT NULL) "
        "FROM family WHERE (? = '' OR name = ?) AND (? = '' OR user = ?) "
        f"ORDER BY last_at DESC, id DESC LIMIT {MOST}",
        (name, name, user, user),
    ).fetchall()
    return tuple(
        FamilyProfile(
            Family(*row[:5]),
            learned_from(row[5]) if row[5] else Learned(),
            *row[6:],
        )
        for row in rows
    )


_JOB = (
    f"SELECT {_COLUMNS}, job.id, job_id, min_nodes, max_nodes, first_at, job.last_at, "
    "counts, sync, start_s, grow_s, shrink_s, loss_s, job.learned "
    "FROM job JOIN family ON family.id = family"
)


def _job_profile(database: sqlite3.Connection, row: Any) -> JobProfile:
    key, job_id, least, most, first_at, last_at, counts, sync = row[5:13]
    learned = row[17]
    rates = rates_of(database, key)
    return JobProfile(
        job_id=job_id,
        family=Family(*row[:5]),
        min_nodes=least,
        max_nodes=most,
        first_at=first_at,
        last_at=last_at,
        learned=learned_from(learned) if learned else Learned(),
        rates=rates,
        counted=current(rates),
        counts=Counts(counts) if counts else Counts.SAMPLES,
        sync=sync,
        pauses=Pauses(*row[13:17]),
    )
