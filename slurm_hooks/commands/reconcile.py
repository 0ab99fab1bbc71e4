"""`malleable reconcile`: run a tick, or a tick every few seconds."""

from __future__ import annotations

import argparse
import signal
import threading
import time
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Callable, Optional

from slurm_hooks.commands.arguments import seconds_between
from slurm_hooks.commands.console import add_command, err, failed, live, out
from slurm_hooks.errors import Exit, MalleableError, NotAllowed, NoTickForLong, UsageError
from slurm_hooks.report.json_data import json_text, tick_data
from slurm_hooks.report.tables import print_lines
from slurm_hooks.report.text import tick_lines
from slurm_hooks.settings.file import load
from slurm_hooks.settings.values import Tick
from slurm_hooks.tick.bookkeeping import booked_tick
from slurm_hooks.tick.lock import patience_s
from slurm_hooks.tick.reconcile import tick

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands

AS_SET = 0.0  # --loop without a number: every tick.every_s


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    text = "run a tick: read the state, plan, check the plan, apply it"
    parser = add_command(commands, "reconcile", _reconcile, text)
    parser.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")
    parser.add_argument(
        "--loop",
        nargs="?",
        const=AS_SET,
        type=seconds_between(1, 86_400),
        metavar="SECONDS",
        help="run a tick every SECONDS until a signal (default: tick.every_s); end if all ticks "
        "fail for minutes",
    )
    parser.add_argument(
        "--for",
        dest="end_after",
        type=seconds_between(1, 86_400),
        metavar="SECONDS",
        help="with --loop: end after SECONDS, with the exit code of the last tick",
    )


def _reconcile(arguments: argparse.Namespace) -> int:
    if arguments.loop is None:
        if arguments.end_after is not None:
            raise UsageError("--for limits a loop: give --loop too")
        return _one_tick(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    code = _loop(arguments, stop.wait)
    return code if arguments.end_after and not stop.is_set() else 0


def _loop(arguments: argparse.Namespace, sleep: Callable[[float], Optional[bool]]) -> int:
    """Run ticks until `sleep` returns True. With --for no tick starts from that time on.

    A tick that takes longer than the interval delays the next. Missed ticks are not repeated.
    Return the exit code of the last tick. Raises NoTickForLong.
    """
    began = time.monotonic()
    while True:
        start, gap_s = time.monotonic(), arguments.loop or _every_s(arguments)
        code = _tolerant_tick(arguments, began, gap_s)
        left_s = max(0.0, gap_s - (time.monotonic() - start))
        is_over = arguments.end_after and time.monotonic() + left_s >= began + arguments.end_after
        if is_over or sleep(left_s):
            return code


def _every_s(arguments: argparse.Namespace) -> float:
    """The interval in the current settings. The tick itself reports their faults."""
    try:
        return load(arguments.settings).tick.every_s
    except MalleableError:
        return Tick().every_s


def _one_tick(arguments: argparse.Namespace, every_s: Optional[float] = None) -> int:
    settings = load(arguments.settings)
    if every_s is not None:
        settings = replace(settings, tick=replace(settings.tick, every_s=every_s))
    port = live(settings)
    warnings: tuple[str, ...] = ()
    if arguments.dry_run:
        report = tick(port, settings, is_dry=True)
    else:
        report, warnings = booked_tick(port, settings)
    if arguments.json:
        print(json_text(tick_data(report)), flush=True)
    else:
        print_lines(out, tick_lines(report))
    print_lines(err, warnings)
    if report.lacks_rights:
        raise NotAllowed(
            "Slurm does not let this user change malleable jobs (permission denied): run the tick "
            "as root, as SlurmUser, or as an Administrator of the accounting database. An Operator "
            "cannot write AdminComment"
        )
    return 0


def _tolerant_tick(arguments: argparse.Namespace, began: float, every_s: float) -> int:
    """Run a tick, and report its failure instead of raising it: the next tick reads the settings
    again. Return its exit code.

    Raises NoTickForLong if this loop, which `began` then (monotonic seconds), has completed no tick
    for that long: a service that cannot do its work must not look alive.
    """
    try:
        return _one_tick(arguments, every_s)
    except MalleableError as error:
        patience = patience_s(Tick(every_s=every_s))
        if isinstance(error, NoTickForLong) and time.monotonic() - began >= patience:
            raise
        return failed(error.exit_code, str(error), arguments.json)
    except Exception:  # a bug in one tick must not end the service
        traceback.print_exc()
        return Exit.BUG
