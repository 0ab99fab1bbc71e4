"""One job: what Slurm, `explain`, its script and its log say, as far as the caller may read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from slurm_hooks.doctor.facts import JobSeen, Unread
from slurm_hooks.doctor.gather.files import attempt
from slurm_hooks.errors import CommandRefused
from slurm_hooks.model import WAITING_STATES, FragmentState, MalleableJob, Plan
from slurm_hooks.model.reason import Why
from slurm_hooks.plural import plural
from slurm_hooks.reconcile import tick
from slurm_hooks.report.text import explain_lines, find_job
from slurm_hooks.settings import Settings
from slurm_hooks.slurm.gateway import read_remarks
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.scontrol import Words, read_records
from slurm_hooks.slurm.text import Command

END_OF_LOG = 1 << 16
LACKING = (Why.ALONE, Why.DIED, Why.STOPPED, Why.NOT_STARTED)
OPEN_STATES = (*WAITING_STATES, FragmentState.PENDING, FragmentState.RUNNING)


def ask_job(port: Port, settings: Settings, job_id: int) -> JobSeen:
    """Raises what the port raises."""
    words = _words(port, job_id)
    if not words:
        unknown = Unread(f"Slurm knows no job {job_id}")
        return JobSeen(job_id, {}, False, (), unknown, unknown)
    report = tick(port, settings, is_dry=True)
    job = find_job(report.snapshot, job_id)
    remarks = read_remarks(port, job_id)
    lines = explain_lines(job, report.plan, report.at, remarks) if job else []
    return JobSeen(
        job_id=job_id,
        words=words,
        is_malleable=job is not None,
        lines=tuple(lines),
        lacks=tuple(_lacks(job, report.plan)) if job else (),
        script=attempt(lambda: _script(port, job_id), settings.tick.command_timeout_s),
        log=attempt(lambda: _log(words)),
    )


def _lacks(job: MalleableJob, plan: Plan) -> Iterator[str]:
    """Why it has fewer nodes than it needs, if so."""
    planned = next((p for p in plan.jobs if p.job_id == job.job_id), None)
    reasons = planned.reasons if planned else ()
    least, has = max(1, job.request.min_nodes), len(job.nodes)
    if has < least and any(f.state in OPEN_STATES for f in job.fragments):
        because = f": {reasons[0]}" if reasons else ""
        yield f"has {plural(has, 'node')} and needs {least}{because}"
    yield from (str(reason) for reason in reasons if reason.why in LACKING)


def _words(port: Port, job_id: int) -> Words:
    try:
        found = read_records(
            port.ask(Command(("scontrol", "--oneliner", "show", "job", str(job_id)))), "JobId"
        )
    except CommandRefused:
        return {}
    return found[0] if found else {}


def _script(port: Port, job_id: int) -> str:
    return port.ask(Command(("scontrol", "write", "batch_script", str(job_id), "-")))


def _log(words: Words) -> str:
    """The end of its log. Raises CommandRefused unless the caller is the job's user, and no root:
    the path is a user's. Raises OSError."""
    uid = re.search(r"\((\d+)\)", words.get("UserId", ""))
    if os.geteuid() == 0 or uid is None or int(uid.group(1)) != os.geteuid():
        raise CommandRefused("a job's log is read only as its own user")
    path = Path(words.get("StdOut", "").replace("%A", words.get("ArrayJobId", "%A")))
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        file.seek(max(0, os.fstat(handle).st_size - END_OF_LOG))
        return file.read(END_OF_LOG).decode("utf-8", "replace")
