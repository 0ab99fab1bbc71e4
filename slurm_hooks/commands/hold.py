"""`malleable hold`, `release`: an operator's pause of a job."""

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
    text = "start no more fragments of a job; what runs goes on"
    add_command(commands, "hold", _hold, text, "needed")
    add_command(commands, "release", _release, "end an operator's hold of a job", "needed")


def _hold(arguments: argparse.Namespace) -> int:
    return _pause(
        arguments, hold, "hold", "held", "running ones go on; `malleable release` ends this"
    )


def _release(arguments: argparse.Namespace) -> int:
    so = "they wait for nodes that are left over"
    return _pause(arguments, release, "release", "released", so)


def _pause(
    arguments: argparse.Namespace,
    act: Callable[[Port, Settings, int], int],
    verb: str,
    did: str,
    so: str,
) -> int:
    job, settings = whole_job(arguments.job, verb), load(arguments.settings)
    count = act(live(settings), settings, job)
    if arguments.json:
        print(json_text({"job_id": job, did: count}))
    else:
        nothing = f"job {job}: no fragment is held by an operator"
        told = f"job {job}: {plural(count, 'fragment')} {did}: {so}"
        print_lines(out, [told if count else nothing])
    return 0
