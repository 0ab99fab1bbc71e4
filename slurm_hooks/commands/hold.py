"""`malleable hold`, `release`: stop and resume the starts of a job's fragments.

Running fragments go on, as with `scontrol hold`. The marks keep the hold, since Slurm's own hold is
lost when a fragment ends or its user requeues it. `scontrol release` would start fragments outside
a lease, so releasing has its own command.
"""

from __future__ import annotations

import argparse
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Callable

from slurm_hooks.commands.console import add_command, live, out, whole_job
from slurm_hooks.errors import CommandRefused, NotAllowed, RetryLater, UsageError
from slurm_hooks.model import (
    ENDED_STATES,
    OPEN_STATES,
    Fragment,
    FragmentState,
    Intent,
    MalleableJob,
    Why,
)
from slurm_hooks.model.moments import plural
from slurm_hooks.report.json_data import json_text
from slurm_hooks.report.tables import print_lines
from slurm_hooks.settings.file import load
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.actions import commands, ranges
from slurm_hooks.slurm.gateway import read_job
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick.lock import between_ticks

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands

_log = logging.getLogger(__name__)
_COME_BACK = (ENDED_STATES | {FragmentState.ENDING}) - {FragmentState.CANCELLED}


def add(commands: Commands) -> None:
    """Add these commands to the parser."""
    text = "keep a job from starting fragments; running fragments continue"
    add_command(commands, "hold", _hold, text, "needed")
    text = "end a hold: the job may start fragments again"
    add_command(commands, "release", _release, text, "needed")


def _hold(arguments: argparse.Namespace) -> int:
    effect = f"running fragments continue; to end this: malleable release {arguments.job}"
    return _change(arguments, hold, "hold", "held", effect)


def _release(arguments: argparse.Namespace) -> int:
    return _change(arguments, release, "release", "released", "they start when nodes are idle")


def _change(
    arguments: argparse.Namespace,
    act: Callable[[Port, Settings, int], int],
    verb: str,
    did: str,
    effect: str,
) -> int:
    job, settings = whole_job(arguments.job, verb), load(arguments.settings)
    count = act(live(settings), settings, job)
    if arguments.json:
        print(json_text({"job_id": job, did: count}))
    else:
        unchanged = f"job {job}: no fragment is held by an operator"
        changed = f"job {job}: {plural(count, 'fragment')} {did}: {effect}"
        print_lines(out, [changed if count else unchanged])
    return 0


def hold(port: Port, settings: Settings, job_id: int) -> int:
    """Hold the job, and return how many fragments wait or run.

    Raises UsageError without such fragments, NotAllowed if this user may not, CommandRefused if
    Slurm refused all.
    """
    return _set(port, settings, job_id, "hold", is_on_hold=True)


def release(port: Port, settings: Settings, job_id: int) -> int:
    """Release an operator's hold, so that fragments wait for a hole again. Return their number.

    Raises RetryLater if some have ended since the last tick. Slurm does not change their marks, and
    a remaining mark holds the job.
    """
    return _set(port, settings, job_id, "uhold", is_on_hold=False)


def _set(port: Port, settings: Settings, job_id: int, verb: str, is_on_hold: bool) -> int:
    """Change the marks between ticks. A tick would write marks as it saw them before."""
    with between_ticks(settings.tick):
        fragments = _open(read_job(port, settings.site.partitions, job_id))
        if not fragments:
            raise UsageError(f"job {job_id}: no fragment waits or runs, so the job may be ending")
        if not is_on_hold:
            fragments = [f for f in fragments if f.is_on_hold or f.mark.is_on_hold]
            for fragment in fragments:
                if fragment.is_requeue_held:
                    _let_go(port, fragment)
        _write(port, fragments, verb, is_on_hold)
        left = read_job(port, settings.site.partitions, job_id)
        now = {
            f.id for f in _open(left) if f.mark.is_on_hold is is_on_hold and _is_done(f, is_on_hold)
        }
    done = [f for f in fragments if f.id in now]
    if fragments and not done:
        raise CommandRefused(f"job {job_id}: Slurm refused to change any fragment")
    kept = ranges(f.id for f in left.fragments if f.state in _COME_BACK and f.mark.is_on_hold)
    if kept and not is_on_hold:
        raise RetryLater(
            f"job {job_id}: still held, since the hold of {', '.join(kept)} ends only after the "
            f"next tick: then run `malleable release {job_id}` again"
        )
    return len(done)


def _is_done(fragment: Fragment, is_on_hold: bool) -> bool:
    return is_on_hold or not fragment.is_requeue_held


def _write(port: Port, fragments: list[Fragment], verb: str, is_on_hold: bool) -> None:
    """Write marks and holds without checking the result, since fragments may end at any moment."""
    marks = [
        Intent(f.id, Why.ON_HOLD, mark=replace(f.mark, is_on_hold=is_on_hold))
        for f in fragments
        if f.mark.is_on_hold is not is_on_hold
    ]
    lines = [f"{verb} {word}" for word in ranges(f.id for f in fragments)]
    asked = commands(marks, {f.id: f.note for f in fragments})
    if lines:
        asked.append(_scontrol(*lines))
    for command in asked:
        _try(port, command)


def _let_go(port: Port, fragment: Fragment) -> None:
    """Turn a requeuehold into our hold. Slurm takes no other hold before a release.

    A released fragment may not start yet, and then keeps its time of waiting.
    """
    word = str(fragment.id)
    if _try(port, _scontrol(f"update jobid={word} StartTime=now+60")):
        lines = [f"release {word}", f"uhold {word}"]
        if fragment.eligible is not None:
            lines.append(f"update jobid={word} StartTime=uts{fragment.eligible.timestamp():.0f}")
        _try(port, _scontrol(*lines))


def _scontrol(*lines: str) -> Command:
    return Command(("scontrol",), "".join(f"{line}\n" for line in lines), len(lines))


def _try(port: Port, command: Command) -> bool:
    try:
        port.ask(command)
    except NotAllowed as error:
        raise NotAllowed(
            "only the tick's user may hold jobs: run this as root, as SlurmUser, or as an "
            f"Administrator of the accounting database ({error})"
        ) from error
    except CommandRefused as error:
        _log.debug("refused: %s", error)
        return False
    return True


def _open(job: MalleableJob) -> list[Fragment]:
    return [f for f in job.fragments if f.state in OPEN_STATES]
