"""Finds other jobs that matter: jobs that have just started, and jobs that wait for a limit.

Delays are measured from the starts. Of the limits only those on running jobs count. The end of a
fragment cannot relieve others, which are left out: on used-up time (minutes, GrpWall), on a single
request, on submitted jobs, on licences (fragments cannot have any). Per account and user only a QOS
has limits. Names as in 22.05 to 25.11.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.model import Counted, MalleableJob, OtherStart, Waiter
from slurm_hooks.slurm.text import expand, parse_time

RECENT = timedelta(minutes=15)

_EACH = ("Cpu", "Node", "Memory", "GRES", "Billing")
_NOW = ("JobsLimit", "CpuLimit", "NodeLimit", "MemLimit", "GRES", "Billing")
_AHEAD = ("CPURunMinutesLimit", "NodeRunMinutes", "GRESRunMinutes", "BillingRunMinutes")
REASONS: Mapping[str, Counted] = {
    **{f"AssocGrp{limit}": Counted.ACCOUNT for limit in (*_NOW, *_AHEAD, "MemRunMinutes")},
    "AssocMaxJobsLimit": Counted.USER,
    **{f"QOSGrp{limit}": Counted.QOS for limit in (*_NOW, *_AHEAD, "MemoryRunMinutes")},
    **{f"QOSMax{limit}PerUserLimit": Counted.QOS_USER for limit in ("Jobs", "Cpu", "Node")},
    **{f"QOSMax{limit}PerUser": Counted.QOS_USER for limit in ("Memory", "GRES", "Billing")},
    **{f"Max{limit}RunMinsPerUser": Counted.QOS_USER for limit in _EACH},
    **{f"Max{limit}PerAccount": Counted.QOS_ACCOUNT for limit in ("Jobs", *_EACH)},
    **{f"Max{limit}RunMinsPerAccount": Counted.QOS_ACCOUNT for limit in _EACH},
}
_NEXT = ("None", "Priority", "Resources")  # of a job that may soon wait for its limit again
_JOB_ID = re.compile(r"\d{1,10}(?:[_+]\d{1,10})?", re.ASCII)


def waiter_in(row: Mapping[str, str], ours: Collection[str]) -> list[Waiter]:
    """Return the job in a pending row, if it waits for a limit, or only for its turn.

    A job in a lane, listed in `ours`, is not an ordinary job.
    """
    reason, job_id = row["Reason"], row["JobArrayID"]
    counted = REASONS.get(reason)
    if (counted is None and reason not in _NEXT) or row["PriorityLong"] == "0":
        return []
    if row["Partition"] in ours or not _JOB_ID.fullmatch(job_id):
        return []
    return [Waiter(job_id, row["UserName"], reason, counted)]


def still_waiting(waiters: Iterable[Waiter], jobs: Iterable[MalleableJob]) -> tuple[Waiter, ...]:
    """Return the jobs that wait for a limit, and the jobs that a fragment gave way to, by id."""
    known = {f.mark.gave_way_to for job in jobs for f in job.fragments}
    waiting = (w for w in waiters if w.counted is not None or w.job_id in known)
    return tuple(sorted(waiting, key=lambda w: w.job_id))


def begun_in(row: Mapping[str, str]) -> list[tuple[datetime, str, str, str]]:
    """Return a job's start, its id, its nodes as text and its partition, or an empty list before
    its start."""
    with contextlib.suppress(ValueError):
        start = parse_time(row["StartTime"])
        if start is not None and row["State"] not in ("PENDING", "CANCELLED"):
            return [(start, row["JobArrayID"], row["NodeList"], row["Partition"])]
    return []


def recent(begun: list[tuple[datetime, str, str, str]]) -> tuple[OtherStart, ...]:
    """Return the starts not long before the last. Host lists of all jobs would take too long."""
    last = max((start for start, *_ in begun), default=None)
    starts = []
    for start, job_id, names, partition in sorted(begun):
        if last is not None and last - start <= RECENT:
            with contextlib.suppress(NodeSetParseError):
                starts.append(OtherStart(job_id, start, expand(names), partition))
    return tuple(starts)
