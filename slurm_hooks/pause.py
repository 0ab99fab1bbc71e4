"""An operator's hold on a malleable job: no fragment of it starts until it is released.

What runs goes on, as with `scontrol hold`, and the tick respects either. `scontrol release` would
start fragments outside a lease, so letting go has a command of its own.
"""

from __future__ import annotations

from slurm_hooks.errors import UsageError
from slurm_hooks.model import (
    WAITING_STATES,
    Fragment,
    FragmentState,
    MalleableJob,
)
from slurm_hooks.settings import Settings
from slurm_hooks.slurm.actions import ranges
from slurm_hooks.slurm.gateway import look_at_jobs
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.text import Command

_OPEN = (*WAITING_STATES, FragmentState.PENDING, FragmentState.RUNNING)
_HIDDEN = "requeued in held state"  # Slurm's reason that no later hold replaces (22.05)


def hold(port: Port, settings: Settings, job_id: int) -> int:
    """Hold every fragment; returns how many. Raises UsageError if there is nothing to hold."""
    found = [f for f in _job(port, settings, job_id).fragments if f.state in _OPEN]
    _write(port, job_id, found, "hold")
    return len(found)


def release(port: Port, settings: Settings, job_id: int) -> int:
    """Let go of what an operator holds: it waits for a hole again. Returns how many fragments."""
    found = [f for f in _job(port, settings, job_id).fragments if f.is_paused and f.state in _OPEN]
    if found:
        _write(port, job_id, found, "uhold")
    return len(found)


def _write(port: Port, job_id: int, found: list[Fragment], verb: str) -> None:
    if not found:
        raise UsageError(f"job {job_id} has ended: there is nothing to {verb}")
    lines = []
    for word in ranges(f.id for f in found if _HIDDEN in f.reason.replace("_", " ")):
        # Nothing starts before StartTime, so the release only clears the reason.
        lines += [f"update jobid={word} StartTime=now+60", f"release {word}"]
    lines += [f"{verb} {word}" for word in ranges(f.id for f in found)]
    port.ask(Command(("scontrol",), "".join(f"{line}\n" for line in lines), len(lines)))


def _job(port: Port, settings: Settings, job_id: int) -> MalleableJob:
    for job in look_at_jobs(port, settings.site.partitions):
        if job.job_id == job_id:
            return job
    raise UsageError(f"Slurm knows no malleable job {job_id} (see `malleable status`)")
