"""Which jobs of others wait for a limit on running jobs: Slurm's reasons, and whom each counts.

Limits that no end of a fragment relieves are not among them: what is used up (minutes, GrpWall),
what one job may ask for, what may be submitted, and what fragments cannot have (licences). Per
account and user there are limits of a QOS only. Names as in 22.05 to 25.11.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from slurm_hooks.model import Counted, MalleableJob, Waiter

_EACH = ("Cpu", "Node", "Memory", "GRES", "Billing")
_NOW = ("JobsLimit", "CpuLimit", "NodeLimit", "MemLimit", "GRES", "Billing")
_AHEAD = ("CPURunMinutesLimit", "NodeRunMinutes", "GRESRunMinutes", "BillingRunMinutes")
REASONS: Mapping[str, Counted] = {
    **{f"AssocGrp{what}": Counted.ACCOUNT for what in (*_NOW, *_AHEAD, "MemRunMinutes")},
    "AssocMaxJobsLimit": Counted.USER,
    **{f"QOSGrp{what}": Counted.QOS for what in (*_NOW, *_AHEAD, "MemoryRunMinutes")},
    **{f"QOSMax{what}PerUserLimit": Counted.QOS_USER for what in ("Jobs", "Cpu", "Node")},
    **{f"QOSMax{what}PerUser": Counted.QOS_USER for what in ("Memory", "GRES", "Billing")},
    **{f"Max{what}RunMinsPerUser": Counted.QOS_USER for what in _EACH},
    **{f"Max{what}PerAccount": Counted.QOS_ACCOUNT for what in ("Jobs", *_EACH)},
    **{f"Max{what}RunMinsPerAccount": Counted.QOS_ACCOUNT for what in _EACH},
}
_NEXT = ("None", "Priority", "Resources")  # of a job whose limit may be found in the way again
_JOB_ID = re.compile(r"\d{1,10}(?:[_+]\d{1,10})?", re.ASCII)


def waiter_in(row: Mapping[str, str], ours: Collection[str]) -> list[Waiter]:
    """The job in the row of a pending one, if it waits for a limit, or only for its turn.

    A job in a partition of malleable jobs, `ours`, is no ordinary one.
    """
    reason, job_id = row["Reason"], row["JobArrayID"]
    counted = REASONS.get(reason)
    if (counted is None and reason not in _NEXT) or row["PriorityLong"] == "0":
        return []
    if row["Partition"] in ours or not _JOB_ID.fullmatch(job_id):
        return []
    return [Waiter(job_id, row["UserName"], reason, counted)]


def still_waiting(waiters: Iterable[Waiter], jobs: Iterable[MalleableJob]) -> tuple[Waiter, ...]:
    """Those that wait for a limit, and those for which a fragment has left, by id."""
    known = {f.mark.gave_way_to for job in jobs for f in job.fragments}
    found = (w for w in waiters if w.counted is not None or w.job_id in known)
    return tuple(sorted(found, key=lambda w: w.job_id))
