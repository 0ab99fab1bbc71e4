"""`malleable hold`, `release`: stop and resume the starts of a job's fragments."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Callable

from slurm_hooks.commands.console import add_command, live, out, whole_job
from slurm_hooks.model.plural import plural
from slurm_hooks.report.json_data import json_text
from slurm_hooks.report.tables import print_lines
from slurm_hooks.settings.file import load
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.live import Port
from slurm_hooks.tick.hold import hold, release

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands


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
