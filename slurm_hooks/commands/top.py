"""`malleable top`: jobs, leases, holes and the next tick, refreshed in the terminal."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from slurm_hooks.arguments import seconds_between
from slurm_hooks.commands.console import add_settings, caller, live, out
from slurm_hooks.errors import UsageError
from slurm_hooks.reconcile import tick
from slurm_hooks.report.text import print_lines
from slurm_hooks.settings_file import load
from slurm_hooks.top.board import HOLE_COLUMNS, JOB_COLUMNS, LEASE_COLUMNS, Board, board_of

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands

EVERY_S = 10.0  # a look is two commands to slurmctld


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    text = "jobs, leases, holes and the next tick, refreshed; changes nothing"
    parser = commands.add_parser("top", help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.add_argument(
        "--every",
        type=seconds_between(2, 3600),
        default=EVERY_S,
        metavar="SECONDS",
        help=f"how often to look (default {EVERY_S:g}, at least 2)",
    )
    parser.add_argument("--once", action="store_true", help="print one look and end")
    add_settings(parser)
    parser.set_defaults(command=_top)


def _top(arguments: argparse.Namespace) -> int:
    if arguments.once:
        settings = load(arguments.settings)
        _print(board_of(tick(live(settings), settings, is_dry=True)))
        return 0
    if not out.is_terminal:
        raise UsageError("malleable top needs a terminal: elsewhere, use malleable top --once")
    try:
        from slurm_hooks.top.app import Top  # noqa: PLC0415  (half a second to import)
    except ImportError as error:
        raise UsageError(
            f"malleable top needs the Python package textual ({error}): pip install textual"
        ) from error
    settings = load(arguments.settings)
    Top(lambda: tick(live(settings), settings, is_dry=True), arguments.every, caller()).run()
    return 0


def _print(board: Board) -> None:
    """One look as text, a table below another."""
    print_lines(out, [board.summary])
    shown = (
        ("jobs", JOB_COLUMNS, board.jobs),
        ("leases", LEASE_COLUMNS, board.leases),
        ("holes", HOLE_COLUMNS, board.holes),
        ("next tick", ("action",), tuple((action,) for action in board.actions)),
    )
    for title, columns, rows in shown:
        if rows:
            table = Table(*columns, box=None, pad_edge=False, header_style="bold")
            for row in rows:
                table.add_row(*map(escape, row))
            print_lines(out, ["", title])
            out.print(table)
