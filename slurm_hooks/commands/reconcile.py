"""`malleable reconcile`: one tick, or one every few seconds."""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
import traceback
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Callable, Optional

from slurm_hooks.bookkeeping import keep_books, summaries
from slurm_hooks.commands.console import add_command, err, live, out, seconds_between
from slurm_hooks.errors import CommandRefused, MalleableError, NoTickForLong
from slurm_hooks.pace import Bell, ask_threads, pause_s, soonest_s, wait
from slurm_hooks.reconcile import loop, tick
from slurm_hooks.report.json_data import tick_data
from slurm_hooks.report.text import print_lines, tick_lines
from slurm_hooks.settings import Tick
from slurm_hooks.settings_file import load
from slurm_hooks.ticklock import patience_s

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands

OWN_PACE = 0.0  # of --loop without a number


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    parser = add_command(commands, "reconcile", _reconcile, "one tick: look, plan, check, apply")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")
    parser.add_argument(
        "--loop",
        nargs="?",
        const=OWN_PACE,
        type=seconds_between(1, 86_400),
        metavar="SECONDS",
        help="a tick every SECONDS (default: as often as it costs nobody anything), until a signal "
        "or until none has succeeded for minutes",
    )


def _reconcile(arguments: argparse.Namespace) -> int:
    if arguments.loop is None:
        return _one_tick(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    rhythm = _Rhythm(arguments)
    loop(rhythm.tick, lambda pause: rhythm.wait(pause, stop.wait))
    return 0


class _Rhythm:
    """When the ticks of a loop come; a tick is told how long it will be until the next."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._began = time.monotonic()
        self._tick_s = 0.0
        self._threads: Optional[int] = None
        self._bell = Bell()

    def tick(self) -> float:
        """Run a tick; the seconds from its start to the next. Raises NoTickForLong."""
        chosen: float = self._arguments.loop
        every_s = self._own_pace_s() if chosen == OWN_PACE else chosen
        began = time.monotonic()
        _tolerant_tick(self._arguments, self._began, every_s)
        self._tick_s = time.monotonic() - began
        return every_s

    def _own_pace_s(self) -> float:
        """By what the last tick took and what slurmctld does now; settings that cannot be read are
        the tick's to complain of."""
        try:
            settings = load(self._arguments.settings)
        except MalleableError:
            return Tick().every_s
        self._bell.listen_at(settings.tick.wake)
        threads = ask_threads(live(settings))
        return pause_s(self._tick_s, threads, settings.tick)

    def wait(self, seconds: float, sleep: Callable[[float], Optional[bool]]) -> bool:
        """Pause; True if the loop is to end."""
        return wait(seconds, soonest_s(self._tick_s), self._bell, sleep)


def _one_tick(arguments: argparse.Namespace, every_s: Optional[float] = None) -> int:
    settings = load(arguments.settings)
    if every_s is not None:
        settings = replace(settings, tick=replace(settings.tick, every_s=every_s))
    port = live(settings)
    sum_up = partial(summaries, settings)
    report = tick(port, settings, arguments.dry_run, sum_up=sum_up)
    if arguments.json:
        print(json.dumps(tick_data(report)), flush=True)
    else:
        print_lines(out, tick_lines(report))
    if not arguments.dry_run:
        warnings = keep_books(report, settings, port)
        print_lines(err, [f"malleable: warning: {line}" for line in warnings])
    if report.lacks_rights:
        raise CommandRefused(
            "Slurm does not let this user change malleable jobs (permission denied): run the tick "
            "as root, as SlurmUser, or as an Administrator of the accounting database; Operators "
            "cannot write AdminComment"
        )
    return 0


def _tolerant_tick(arguments: argparse.Namespace, began: float, every_s: float) -> None:
    """A tick whose failure is reported and survived: settings are read again next time.

    Raises NoTickForLong once this loop, which `began` then (monotonic seconds), has had as long to
    complete one: a service that cannot do its work must not look alive.
    """
    try:
        _one_tick(arguments, every_s)
    except MalleableError as error:
        patience = patience_s(Tick(every_s=every_s))
        if isinstance(error, NoTickForLong) and time.monotonic() - began >= patience:
            raise
        print_lines(err, [f"malleable: {line}" for line in str(error).splitlines()])
    except Exception:  # a bug in one tick must not end the service
        traceback.print_exc()
