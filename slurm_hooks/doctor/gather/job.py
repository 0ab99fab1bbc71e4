"""Read a job from Slurm, `explain`, its script and its log, as far as the caller may read them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from slurm_hooks.doctor.facts import JobSeen, Unread
from slurm_hooks.doctor.gather.files import attempt
from slurm_hooks.errors import CommandRefused
from slurm_hooks.model import MalleableJob, Plan, Why
from slurm_hooks.model.moments import sized
from slurm_hooks.report.text import explain_lines, find_job
from slurm_hooks.report.why import reason_text
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.gateway import read_remarks
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.scontrol import Words, read_records
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick.reconcile import tick

END_OF_LOG = 1 << 16
LACKING = (Why.APART, Why.DIED, Why.STOPPED, Why.NOT_STARTED)


def ask_job(port: Port, settings: Settings, job_id: int) -> JobSeen:
    """The facts of a job. Raises MalleableError if Slurm does not answer."""
    words = _words(port, job_id)
    if not words:
        unknown = Unread(f"Slurm has no job {job_id}")
        return JobSeen(job_id, {}, False, (), unknown, unknown)
    report = tick(port, settings, is_dry=True)
    job = find_job(report.snapshot, job_id)
    remarks = read_remarks(port, job_id)
    lines = explain_lines(job, report.plan, report.at, remarks) if job else []
    missing = lacks(job, report.plan, report.at) if job else ()
    return JobSeen(
        job_id=job_id,
        words=words,
        is_malleable=job is not None,
        lines=tuple(lines),
        lacks=tuple(missing),
        script=attempt(lambda: _script(port, job_id), settings.tick.command_timeout_s),
        log=attempt(lambda: _log(words)),
    )


def lacks(job: MalleableJob, plan: Plan, now: datetime) -> Iterator[str]:
    """The reasons why it is smaller than it must be, and the planner's lines on its failures."""
    for planned in (p for p in plan.jobs if p.job_id == job.job_id):
        reasons = [(r.why, reason_text(r, now, planned.unit)) for r in planned.reasons]
        if planned.nodes_now < planned.nodes_needed:
            because = f": {reasons[0][1]}" if reasons else ""
            has = sized(planned.nodes_now, planned.unit)
            yield f"has {has} and needs {planned.nodes_needed}{because}"
        yield from (text for why, text in reasons if why in LACKING)


def _words(port: Port, job_id: int) -> Words:
    try:
        records = read_records(
            port.ask(Command(("scontrol", "--oneliner", "show", "job", str(job_id)))), "JobId"
        )
    except CommandRefused:
        return {}
    return records[0] if records else {}


def _script(port: Port, job_id: int) -> str:
    return port.ask(Command(("scontrol", "write", "batch_script", str(job_id), "-")))


def _log(words: Words) -> str:
    """The end of its log. Raises CommandRefused unless the caller is the job's user and not root,
    since the path is a user's. Raises OSError."""
    uid = re.search(r"\((\d+)\)", words.get("UserId", ""))
    if os.geteuid() == 0 or uid is None or int(uid.group(1)) != os.geteuid():
        raise CommandRefused("a job's log is read only as its own user")
    path = Path(words.get("StdOut", "").replace("%A", words.get("ArrayJobId", "%A")))
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        file.seek(max(0, os.fstat(handle).st_size - END_OF_LOG))
        return file.read(END_OF_LOG).decode("utf-8", "replace")
