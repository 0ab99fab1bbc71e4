"""`malleable off`, `on`: the switch that keeps malleable jobs off all nodes.

The switch works even with wrong settings, if its directory is known. The tick that sends the
fragments away needs valid settings.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, Optional

from slurm_hooks.commands.console import add_command, err, live, out
from slurm_hooks.errors import MalleableError, RetryLater, SettingsError
from slurm_hooks.planning.modes import why_off
from slurm_hooks.report.json_data import json_text, tick_data
from slurm_hooks.report.tables import print_lines
from slurm_hooks.report.text import tick_lines
from slurm_hooks.report.why import note_text
from slurm_hooks.settings.file import load, state_dir
from slurm_hooks.settings.values import Settings
from slurm_hooks.tick.bookkeeping import booked_tick
from slurm_hooks.tick.last_tick import find_last_tick
from slurm_hooks.tick.report import TickReport
from slurm_hooks.tick.switch import switch_off, switch_on

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands

STRANGE_HOST = (
    "no tick has run on this host before: if ticks run on another host, the switch works only there"
)


def add(commands: Commands) -> None:
    """Add these commands to the parser."""
    text = "send all fragments away, and start no fragment until `malleable on`"
    parser = add_command(commands, "off", _off, text)
    parser.add_argument(
        "--reason", default="", metavar="TEXT", help="show TEXT in status and explain"
    )
    _add_place(parser)
    _add_place(
        add_command(commands, "on", _on, "undo `off`: fragments start again from the next tick on")
    )


def _add_place(parser: argparse.ArgumentParser) -> None:
    text = "directory of the switch (default: tick.state_dir)"
    parser.add_argument("--state-dir", metavar="DIR", help=text)


def _off(arguments: argparse.Namespace) -> int:
    place = arguments.state_dir or state_dir(arguments.settings)
    off = switch_off(place, arguments.reason)
    line = note_text(why_off(off))
    if not arguments.json:
        print_lines(out, [line])  # at once: the switch already works, and Slurm may be slow
    report, lines = _tick_now(arguments, place)
    if arguments.json:
        done = tick_data(report) if report else None
        print(json_text({"off": off, "tick": done, "lines": lines}))
    else:
        lines_of_tick = tick_lines(report) if report else []
        print_lines(out, [each for each in lines_of_tick if line not in each])
        print_lines(err, lines)
    is_late = report is not None and report.refused and not report.lacks_rights
    return int(RetryLater.exit_code) if is_late else 0


def _on(arguments: argparse.Namespace) -> int:
    before = switch_on(arguments.state_dir or state_dir(arguments.settings))
    text = "malleable jobs were already on"
    if before is not None:
        text = "malleable jobs are on again: fragments may start from the next tick on"
    faults = _settings(arguments)[1]
    if arguments.json:
        data: dict[str, Any] = {"was_off": before, "lines": faults}
        print(json_text(data))
    else:
        print_lines(out, [text])
        print_lines(err, faults)
    return 0


def _tick_now(arguments: argparse.Namespace, place: str) -> tuple[Optional[TickReport], list[str]]:
    """Run a tick at once, so that fragments need not wait for the next tick. Without a tick, return
    lines that explain the delay."""
    settings, faults = _settings(arguments)
    if settings is None:
        return None, faults
    if os.path.realpath(settings.tick.state_dir) != os.path.realpath(place):
        where = f"tick.state_dir = {settings.tick.state_dir!r}"
        return None, [f"ticks with these settings read the switch elsewhere: {where}"]
    strange = [] if find_last_tick(settings) else [STRANGE_HOST]
    try:
        report, warnings = booked_tick(live(settings), settings)
    except MalleableError as error:
        later = f"the next tick sends the fragments away, within {settings.tick.every_s:g} s"
        why = [f"no tick ran now: {error}", f"{later}, if the timer or --loop runs here"]
        return None, [*strange, *why]
    if report.lacks_rights:
        refused = "Slurm refused this user's changes: the next tick makes them, if the timer runs"
        return report, [*strange, refused, *warnings]
    if report.refused:
        kept = "Slurm refused changes, so fragments may keep their nodes until the next tick"
        return report, [*strange, f"{kept}: see `malleable status`", *warnings]
    return report, [*strange, *warnings]


def _settings(arguments: argparse.Namespace) -> tuple[Optional[Settings], list[str]]:
    """The settings, None with lines on the consequences if they are wrong."""
    try:
        return load(arguments.settings), []
    except SettingsError as error:
        stopped = (
            "no tick runs with these settings: no fragment starts, and running fragments end with "
            "their leases. To send them away now, mend the settings and repeat this command"
        )
        return None, [*error.faults, stopped]
