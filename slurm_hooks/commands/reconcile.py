"""`malleable reconcile`: one tick, or one every few seconds."""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

from slurm_hooks.commands.console import add_command, err, live, out, seconds_between
from slurm_hooks.commands.ticking import booked_tick
from slurm_hooks.errors import CommandRefused, MalleableError, NoTickForLong
from slurm_hooks.reconcile import loop, tick
from slurm_hooks.report.json_data import tick_data
from slurm_hooks.report.text import print_lines, tick_lines
from slurm_hooks.settings import Settings
from slurm_hooks.settings_file import load
from slurm_hooks.ticklock import patience_s

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    parser = add_command(commands, "reconcile", _reconcile, "one tick: look, plan, check, apply")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")
    parser.add_argument(
        "--loop",
        type=seconds_between(1, 86_400),
        metavar="SECONDS",
        help="a tick every SECONDS, until a signal or until none has succeeded for minutes",
    )


def _reconcile(arguments: argparse.Namespace) -> int:
    if arguments.loop is None:
        return _one_tick(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    began = time.monotonic()
    loop(lambda: _tolerant_tick(arguments, began), arguments.loop, stop.wait)
    return 0


def _settings(arguments: argparse.Namespace) -> Settings:
    settings = load(arguments.settings)
    if arguments.loop is None:
        return settings
    return replace(settings, tick=replace(settings.tick, every_s=arguments.loop))


def _patience_s(arguments: argparse.Namespace) -> float:
    return patience_s(_settings(arguments).tick)


def _one_tick(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    port = live(settings)
    warnings: tuple[str, ...] = ()
    if arguments.dry_run:
        report = tick(port, settings, is_dry=True)
    else:
        report, warnings = booked_tick(port, settings)
    if arguments.json:
        print(json.dumps(tick_data(report)), flush=True)
    else:
        print_lines(out, tick_lines(report))
    print_lines(err, warnings)
    if report.lacks_rights:
        raise CommandRefused(
            "Slurm does not let this user change malleable jobs (permission denied): run the tick "
            "as root, as SlurmUser, or as an Administrator of the accounting database; Operators "
            "cannot write AdminComment"
        )
    return 0


def _tolerant_tick(arguments: argparse.Namespace, began: float) -> None:
    """A tick whose failure is reported and survived: settings are read again next time.

    Raises NoTickForLong once this loop, which `began` then (monotonic seconds), has had as long to
    complete one: a service that cannot do its work must not look alive.
    """
    try:
        _one_tick(arguments)
    except MalleableError as error:
        if isinstance(error, NoTickForLong) and time.monotonic() - began >= _patience_s(arguments):
            raise
        print_lines(err, [f"malleable: {line}" for line in str(error).splitlines()])
    except Exception:  # a bug in one tick must not end the service
        traceback.print_exc()
