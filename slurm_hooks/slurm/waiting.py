"""Finds other jobs that wait for a limit on running jobs: Slurm's reasons, and the jobs they count.

The end of a fragment cannot relieve some limits, which are left out: on used-up time (minutes,
GrpWall), on a single request, on submitted jobs, on licences (fragments cannot have any). Per
account and user only a QOS has limits. Names as in 22.05 to 25.11.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from slurm_hooks.model import Counted, MalleableJob, Waiter

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
