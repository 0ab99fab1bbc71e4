"""Elements with our mark in a partition that is not ours.

A job_submit that runs after ours or an operator may have moved them there, or site.partitions has
changed. There they are not preempted, and no tick starts, renews or ends them. So each tick says
where they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Optional

from slurm_hooks.model.plural import plural
from slurm_hooks.slurm.mark import MARK

_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")
_RUNNING = ("RUNNING", "CONFIGURING", "SUSPENDED")
Stray = tuple[str, str, str, bool]  # job, user, partition, whether it runs


def stray_in(row: Mapping[str, str]) -> Optional[Stray]:
    """Return the stray in a row that is no fragment of ours, or None if ended or without a mark."""
    state = row["State"]
    if MARK not in row["admin_comment"] or state not in (*_WAITING, *_RUNNING):
        return None
    job = row["JobArrayID"].partition("_")[0]
    return job, row["UserName"], row["Partition"], state in _RUNNING


def stray_lines(strays: Iterable[Stray]) -> tuple[str, ...]:
    """Return a line for the running strays of each job, and another for its waiting strays."""
    return tuple(_line(*stray, count) for stray, count in sorted(Counter(strays).items()))


def _line(job: str, user: str, partition: str, runs: bool, count: int) -> str:
    how, so = (
        ("runs", "there they are ordinary jobs until their time limit")
        if runs
        else ("waits with", "no tick starts them")
    )
    return (
        f"job {job} of {user} {how} {plural(count, 'element')} in partition {partition}, which "
        f"site.partitions does not name: {so}; has a job_submit after ours moved them?"
    )
