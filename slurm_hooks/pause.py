"""An operator's hold on a malleable job: no fragment of it starts until it is released.

What runs goes on, as with `scontrol hold`. That it is held stands in the marks, since Slurm's own
hold is lost when a fragment ends or its user requeues it. `scontrol release` would start fragments
outside a lease, so letting go has a command of its own.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from slurm_hooks.errors import CommandRefused, UsageError
from slurm_hooks.model import WAITING_STATES, Cause, Fragment, FragmentState, MalleableJob, SetMark
from slurm_hooks.settings import Settings
from slurm_hooks.slurm.actions import commands, ranges
from slurm_hooks.slurm.gateway import look_at_jobs
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.text import Command
from slurm_hooks.ticklock import between_ticks

_log = logging.getLogger(__name__)
_NOT_YET = "StartTime=now+60"  # for the moment between a release and our hold
_OPEN = (*WAITING_STATES, FragmentState.PENDING, FragmentState.RUNNING)


def hold(port: Port, settings: Settings, job_id: int) -> int:
    """Hold the job; returns how many fragments wait or run. Raises UsageError if none does,
    CommandRefused if Slurm let none be held."""
    return _set(port, settings, job_id, "hold", is_paused=True)


def release(port: Port, settings: Settings, job_id: int) -> int:
    """Let go of what an operator holds: it waits for a hole again. Returns how many fragments.

    Slurm takes no hold instead of that of a requeuehold before it was released.
    """
    return _set(port, settings, job_id, "uhold", is_paused=False)


def _set(port: Port, settings: Settings, job_id: int, verb: str, is_paused: bool) -> int:
    """No tick runs meanwhile: it would write marks as it saw them before."""
    with between_ticks(settings.tick):
        found = _open(_job(port, settings, job_id))
        if not found:
            raise UsageError(f"job {job_id}: no fragment waits or runs; is it ending?")
        if not is_paused:
            found = [f for f in found if f.is_paused or f.mark.is_paused]
        _write(port, found, verb, is_paused)
        now = {f.id for f in _open(_job(port, settings, job_id)) if f.mark.is_paused is is_paused}
    done = [f for f in found if f.id in now]
    if found and not done:
        raise CommandRefused(f"job {job_id}: Slurm refused to change any fragment")
    return len(done)


def _write(port: Port, found: list[Fragment], verb: str, is_paused: bool) -> None:
    """Whether it worked is seen afterwards: fragments may end at any moment."""
    marks = [
        SetMark(f.id, replace(f.mark, is_paused=is_paused), Cause.PAUSED)
        for f in found
        if f.mark.is_paused is not is_paused
    ]
    hidden = [f.id for f in found if f.is_requeue_held and not is_paused]
    lines = [
        line
        for word in ranges(hidden)
        for line in (f"update jobid={word} {_NOT_YET}", f"release {word}")
    ]
    lines += [f"{verb} {word}" for word in ranges(f.id for f in found)]
    asked = commands(marks, {f.id: f.note for f in found})
    if lines:
        text = "".join(f"{line}\n" for line in lines)
        asked.append(Command(("scontrol",), text, len(lines)))
    for command in asked:
        try:
            port.ask(command)
        except CommandRefused as error:
            _log.debug("refused: %s", error)


def _open(job: MalleableJob) -> list[Fragment]:
    return [f for f in job.fragments if f.state in _OPEN]


def _job(port: Port, settings: Settings, job_id: int) -> MalleableJob:
    for job in look_at_jobs(port, settings.site.partitions):
        if job.job_id == job_id:
            return job
    raise UsageError(f"Slurm knows no malleable job {job_id} (see `malleable status`)")
