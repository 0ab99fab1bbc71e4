"""`malleable report`: what was made of idle nodes, from the ledger; read-only."""

from __future__ import annotations

import argparse
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_hooks.commands.console import add_command, err, out
from slurm_hooks.errors import UsageError
from slurm_hooks.harvest.totals import Asked, Totals
from slurm_hooks.ledger.connect import Damaged, Unusable, ledger_path, reading
from slurm_hooks.ledger.read import totals
from slurm_hooks.moments import A_MOMENT, read_moment
from slurm_hooks.report.harvest_charts import picture
from slurm_hooks.report.harvest_html import page
from slurm_hooks.report.harvest_json import harvest_data
from slurm_hooks.report.harvest_text import harvest_view
from slurm_hooks.report.json_data import json_text
from slurm_hooks.report.text import print_lines
from slurm_hooks.settings import Settings
from slurm_hooks.settings_file import load

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands

_NOW = "now"


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    parser = add_command(commands, "report", _report, "what was made of idle nodes")
    when = f"{A_MOMENT} (default: %(default)s)"
    parser.add_argument("--since", default="7d", metavar="WHEN", help=when)
    parser.add_argument("--until", default=_NOW, metavar="WHEN", help=when)
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page with charts")
    parser.add_argument("--png", type=Path, metavar="FILE", help="write a picture")
    parser.add_argument("--user", default="", help="only jobs of this user")
    parser.add_argument("--account", default="", help="only jobs of this account")


def _report(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    now = datetime.now().astimezone()  # noqa: TID251  (--since counts from here)
    found = _read(settings, _asked(arguments, now))
    if arguments.user and not found.jobs and not arguments.json:
        print_lines(err, [f"note: no job of user {arguments.user} in this time"])
    if arguments.html:
        arguments.html.write_text(page(found), encoding="utf-8")
    if arguments.png:
        picture(arguments.png, found)
    if arguments.json:
        print(json_text(harvest_data(found)))
    elif written := list(filter(None, (arguments.html, arguments.png))):
        print_lines(out, [f"written: {path}" for path in written])
    else:
        out.print(harvest_view(found))
    return 0


def _asked(arguments: argparse.Namespace, now: datetime) -> Asked:
    """The span that was asked for. Raises UsageError if it ends before it begins, or is not one."""
    try:
        since, until = (read_moment(text, now) for text in (arguments.since, arguments.until))
    except ValueError as error:
        raise UsageError(str(error)) from error
    if since >= until:
        end = "now" if arguments.until == _NOW else f"--until {arguments.until}"
        raise UsageError(f"--since {arguments.since} is not before {end}: nothing lies between")
    return Asked(since, until, arguments.user, arguments.account)


def _read(settings: Settings, asked: Asked) -> Totals:
    """Raises UsageError with what to do if there is no ledger that can be read."""
    path = ledger_path(settings.tick.state_dir)
    try:
        with reading(path) as ledger:
            return totals(ledger, asked)
    except Unusable as error:
        advice = _advice(path, settings, isinstance(error, Damaged))
        raise UsageError(f"cannot read the ledger {path}: {error}. {advice}") from error


def _is_missing(path: Path) -> bool:
    """False too where nobody may look: Path.exists raises there."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _advice(path: Path, settings: Settings, is_damaged: bool) -> str:
    if is_damaged:
        return "The next tick moves it aside and begins a new one"
    if not settings.ledger.enabled:
        return "ledger.enabled is false in the settings: ticks write none"
    if _is_missing(path):
        return "The first tick makes it; or name the settings of the tick with --settings"
    return "Run this as root or as the user that runs the tick"
