"""Finds the jobs for which malleable jobs make room because of a limit on running jobs.

Slurm preempts for nodes and never for a limit. A job that waits for a limit waits until the counted
jobs have ended, and fragments renew their leases. So malleable jobs under such a limit have no
fragment from then on until that job has started. Slurm names a job's account and not the accounts
above it, whose limits count the job as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.model import Counted, Detail, MalleableJob, Reason, Waiter, Why
from slurm_hooks.planning.ground import Ground

_OF_QOS = (Counted.QOS, Counted.QOS_USER, Counted.QOS_ACCOUNT)


@dataclass(frozen=True)
class Queue:
    """The waiting jobs of others: all by id, and a single job for each kind of limit."""

    by_id: Mapping[str, Waiter]
    limited: tuple[Waiter, ...] = ()

    def first(self, job: MalleableJob) -> Optional[Waiter]:
        """The job for which this job makes room. None if there is no such job.

        A job for which its fragments left before still counts while it waits for anything else,
        such as nodes. Otherwise the fragments would come back and have to leave again.
        """
        known = {f.mark.gave_way_to for f in job.stirring}
        again = (self.by_id[i] for i in sorted(known & self.by_id.keys()))
        return next(again, None) or next((w for w in self.limited if is_counted(job, w)), None)


def queue_of(ground: Ground) -> Queue:
    firsts: dict[tuple[object, ...], Waiter] = {}
    for waiter in limit_waiters(ground):
        kind = (waiter.counted, waiter.user, waiter.account, waiter.qos)
        firsts.setdefault(kind, waiter)
    return Queue({w.job_id: w for w in ground.seen.waiting}, tuple(firsts.values()))


def is_counted(job: MalleableJob, waiter: Waiter) -> bool:
    """Tell whether the limit for which `waiter` waits counts the fragments of `job`.

    For a limit of all users, both accounts or both QOS have to be known. For a limit of a user, an
    unknown account or QOS counts as equal.
    """
    account, qos = (job.account.lower(), waiter.account.lower()), (job.qos, waiter.qos)
    if waiter.counted is Counted.ACCOUNT:
        return _is_same(*account)
    if waiter.counted is Counted.QOS:
        return _is_same(*qos)
    if waiter.counted is Counted.QOS_ACCOUNT:
        return _is_same(*account) and _may_be_same(*qos)
    others = account if waiter.counted is Counted.USER else qos
    return job.user == waiter.user and _may_be_same(*others)


def why_waiting(waiter: Waiter) -> Reason:
    """The reason shown to the people whose job makes room."""
    detail = Detail(waiter=waiter.job_id, user=waiter.user, said=waiter.reason)
    if waiter.counted is not None:
        detail["limit"] = waiter.counted
    return Reason(Why.LIMIT, detail)


def limit_waiters(ground: Ground) -> list[Waiter]:
    """The jobs that wait for a limit which may count fragments.

    Limits of a QOS cannot, if malleable jobs have their own QOS.
    """
    ignored = _OF_QOS if ground.settings.site.qos else ()
    return [w for w in ground.seen.waiting if w.counted is not None and w.counted not in ignored]


def _is_same(one: str, other: str) -> bool:
    return bool(one) and one == other


def _may_be_same(one: str, other: str) -> bool:
    return not (one and other) or one == other
