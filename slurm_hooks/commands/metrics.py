"""`malleable metrics`: print the ledger's counts for Prometheus, or serve them over HTTP."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import threading
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from slurm_hooks.commands.books import opened_ledger
from slurm_hooks.commands.console import add_command, err
from slurm_hooks.errors import MissingProgram, UsageError
from slurm_hooks.history.questions import standing
from slurm_hooks.report.json_data import json_text
from slurm_hooks.report.tables import print_lines
from slurm_hooks.settings.file import load
from slurm_hooks.settings.values import Settings
from slurm_hooks.tick.bookkeeping import ledger_standing

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    text = "print the ledger's counts for Prometheus, or serve them with --listen"
    parser = add_command(commands, "metrics", _metrics, text)
    parser.add_argument(
        "--listen",
        type=_address,
        metavar="ADDRESS:PORT",
        help="serve HTTP there, such as 127.0.0.1:9777",
    )


def _address(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"\[?([0-9A-Za-z.:-]+?)\]?:(\d{1,5})", text)
    if not match or not 0 < int(match.group(2)) < 65_536:
        raise argparse.ArgumentTypeError("must be ADDRESS:PORT, such as 127.0.0.1:9777")
    return match.group(1), int(match.group(2))


def _metrics(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    if arguments.listen and arguments.json:
        raise UsageError("--listen serves Prometheus's own form: leave --json out")
    if arguments.listen:
        address, port = arguments.listen
        if not address.startswith("127.") and address not in ("::1", "localhost"):
            print_lines(
                err,
                [f"malleable: {address}:{port} has no TLS and no password: any host can read it"],
            )
        return _serve(address, port, settings)
    with opened_ledger(settings) as ledger:
        counts = standing(ledger)
    if arguments.json:
        print(json_text({"metrics": _exposition().samples_of(counts, settings.metrics)}))
    else:
        sys.stdout.write(_exposition().text_of(counts, settings.metrics).decode())
    return 0


def _exposition() -> ModuleType:
    """The module that needs the library of Prometheus, which is optional."""
    try:
        return import_module("slurm_hooks.history.metrics")
    except ImportError as error:
        raise MissingProgram(
            "this needs the Python library prometheus_client: install slurm-malleable[metrics]"
        ) from error


def _serve(address: str, port: int, settings: Settings) -> int:
    """Answer until a signal comes. Each scrape reads the ledger, and does not wait long for it."""
    exposition = _exposition()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        close = exposition.serve(address, port, lambda: ledger_standing(settings), settings.metrics)
    except OSError as error:
        raise UsageError(f"cannot listen at {address}:{port}: {error.strerror}") from error
    print_lines(err, [f"malleable: metrics at http://{address}:{port}/metrics"])
    stop.wait()
    close()
    return 0
