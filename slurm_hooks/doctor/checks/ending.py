"""Check how fragments end and come back: kill wait, leases, requeue, records of ended jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from slurm_hooks.doctor.facts import Facts, known
from slurm_hooks.doctor.finding import (
    Category,
    Change,
    Check,
    Finding,
    Paste,
    error,
    note,
    warning,
)
from slurm_hooks.slurm.scontrol import of_partition

LONG_KILL_WAIT_S = 60
SECONDS_BETWEEN_LOOKS = 30
SECONDS_TO_END = 1  # for the processes, once the farewell is over
USUAL_JOB_AGE_S = 300
# Ended jobs that slurmctld has room for, a second: with the defaults 10,000 / 300 s = 33.
FEW_JOBS_A_SECOND = 10
TICKS_TO_SEE_AN_END = 4


def _kill_wait(facts: Facts) -> Iterator[Finding]:
    wait_s = known(facts.slurm).number("KillWait")
    if wait_s > LONG_KILL_WAIT_S:
        yield warning(f"KillWait={wait_s}", Change("KillWait", "30"))


def _over_time(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    everywhere = slurm.config.get("OverTimeLimit", "0").split(" ")[0]
    for words in slurm.ours:
        own = words.get("OverTimeLimit", "NONE")
        value = everywhere if own == "NONE" else own
        if value != "0":
            yield error(
                f"partition {words['PartitionName']}: OverTimeLimit={value} (minutes)",
                Change("OverTimeLimit", "0", of_partition(words)),
            )


def _job_requeue(facts: Facts) -> Iterator[Finding]:
    if known(facts.slurm).value("JobRequeue") == "0":
        yield note("JobRequeue=0", Change("JobRequeue", "1"))


def _job_file_append(facts: Facts) -> Iterator[Finding]:
    if known(facts.slurm).config.get("JobFileAppend", "1") == "0":
        yield warning(
            "JobFileAppend=0",
            Change("JobFileAppend", "1"),
            advice="without it users need --open-mode=append, or a separate log for each fragment",
        )


def _job_age(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    age_s, most = slurm.number("MinJobAge"), slurm.number("MaxJobCount")
    needed_s = math.ceil(TICKS_TO_SEE_AN_END * facts.settings.tick.every_s)
    better_s = max(USUAL_JOB_AGE_S, needed_s)
    if age_s == 0 or 0 < most < FEW_JOBS_A_SECOND * age_s:
        kept = "forever" if age_s == 0 else f"for {age_s} s"
        is_too_long = age_s == 0 or age_s > better_s
        shorter = (Change("MinJobAge", str(better_s)),) if is_too_long else ()
        enough = FEW_JOBS_A_SECOND * (age_s if age_s >= needed_s else better_s)
        room = f"raise MaxJobCount to {enough}, or have ticks more often"
        yield warning(
            f"MinJobAge={age_s} with MaxJobCount={most}: ended jobs are kept {kept} and count",
            *shorter,
            advice="" if shorter else room,
        )
    if 0 < age_s < needed_s:
        yield warning(
            f"MinJobAge={age_s}: Slurm may forget ended fragments before a tick has seen their end "
            f"(at least {needed_s} s are needed)",
            Change("MinJobAge", str(better_s)),
        )


def _unkillable(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    limit_s, wait_s = slurm.number("UnkillableStepTimeout"), slurm.number("KillWait", 30)
    if 0 < limit_s < min(wait_s, LONG_KILL_WAIT_S):  # the check kill-wait covers a long KillWait
        yield warning(
            f"UnkillableStepTimeout={limit_s} is shorter than KillWait={wait_s}",
            Change("UnkillableStepTimeout", str(max(60, 2 * wait_s))),
        )


def _margin(facts: Facts) -> Iterator[Finding]:
    margin_s = facts.settings.lease.margin_s
    if margin_s < SECONDS_BETWEEN_LOOKS:
        yield warning(
            f"lease.margin_s = {margin_s}",
            Paste(facts.settings_path, "margin_s = 60", place="in the section [lease]"),
        )


def _farewell(facts: Facts) -> Iterator[Finding]:
    wait_s = known(facts.slurm).number("KillWait", 30)
    farewell_s, most_s = facts.settings.lease.farewell_s, max(0, wait_s - SECONDS_TO_END)
    if farewell_s > most_s:
        yield warning(
            f"lease.farewell_s = {farewell_s:g} with KillWait={wait_s}",
            Paste(facts.settings_path, f"farewell_s = {most_s}", place="in the section [lease]"),
            advice="then render the policy of job_submit again",
        )


TABLE = (
    Check(
        "lease-margin",
        Category.ENDING,
        "lease.margin_s covers slurmctld's slow check of time limits",
        "slurmctld checks time limits only every 30 s. With a smaller margin a fragment may "
        "overrun its hole.",
        _margin,
        is_ours=True,
    ),
    Check(
        "kill-wait",
        Category.ENDING,
        f"KillWait is at most {LONG_KILL_WAIT_S} s",
        "KillWait is the time from SIGTERM to SIGKILL. An urgent job waits that long for a "
        "fragment that does not react, and longer in a lane with a grace or an exempt time "
        "(longest-wait). Fragments leave that much earlier.",
        _kill_wait,
    ),
    Check(
        "farewell",
        Category.ENDING,
        "lease.farewell_s is shorter than KillWait",
        "Fragments that Slurm ends save their state in that time. SIGKILL comes after KillWait. If "
        "it comes earlier, the job repeats the work since its last checkpoint.",
        _farewell,
        is_ours=True,
    ),
    Check(
        "over-time-limit",
        Category.ENDING,
        "jobs in our partitions end at their time limit",
        "A fragment's time limit is its lease, which ends before another job needs the node. "
        "OverTimeLimit lets the fragment run longer.",
        _over_time,
    ),
    Check(
        "job-requeue",
        Category.ENDING,
        "jobs are requeued by default",
        "Fragments come back by a requeue. job_submit requests it for each malleable job, so this "
        "setting is optional.",
        _job_requeue,
    ),
    Check(
        "job-file-append",
        Category.ENDING,
        "a requeued job appends to its log",
        "Otherwise Slurm empties the log of a fragment when it comes back. Lua cannot set a job's "
        "open mode.",
        _job_file_append,
    ),
    Check(
        "min-job-age",
        Category.ENDING,
        "slurmctld keeps ended jobs long enough for a tick, but not for hours",
        "If slurmctld forgets a fragment before a tick has seen its end, the job loses the "
        "fragment. Ended jobs count against MaxJobCount. When that is reached, no user can submit.",
        _job_age,
    ),
    Check(
        "unkillable",
        Category.ENDING,
        "UnkillableStepTimeout is not shorter than KillWait",
        "Slurm drains a node whose step does not end in that time, even if the step is still "
        "within its KillWait.",
        _unkillable,
    ),
)
