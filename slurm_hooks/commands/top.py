"""`malleable top`: show jobs, leases, holes and the next tick, refreshed in the terminal."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from slurm_hooks.commands.arguments import seconds_between
from slurm_hooks.commands.console import add_command, caller, live, out
from slurm_hooks.errors import UsageError
from slurm_hooks.planning.holes import idle_claims
from slurm_hooks.report.json_data import json_text, plan_data
from slurm_hooks.report.tables import Rows, fitted, print_lines, print_tables, table_of
from slurm_hooks.report.top.board import HOLE_COLUMNS, JOB_COLUMNS, LEASE_COLUMNS, Board, board_of
from slurm_hooks.settings.file import load
from slurm_hooks.tick.reconcile import tick
from slurm_hooks.tick.report import TickReport

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands

EVERY_S = 10.0  # a refresh is two commands to slurmctld


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    text = "show jobs, leases, holes and the next tick, refreshed"
    parser = add_command(commands, "top", _top, text)
    parser.add_argument(
        "--every",
        type=seconds_between(2, 3600),
        default=EVERY_S,
        metavar="SECONDS",
        help=f"refresh every SECONDS (default {EVERY_S:g}, at least 2)",
    )
    parser.add_argument(
        "--once", action="store_true", help="print once and end, as --json does too"
    )


def _top(arguments: argparse.Namespace) -> int:
    if arguments.once or arguments.json:
        settings = load(arguments.settings)
        report = tick(live(settings), settings, is_dry=True)
        if arguments.json:
            print(json_text(_data(report)))
        else:
            _print(board_of(report))
        return 0
    if not out.is_terminal:
        raise UsageError("malleable top needs a terminal; without one use malleable top --once")
    try:
        from slurm_hooks.report.top.app import Top  # noqa: PLC0415  (half a second to import)
    except ImportError as error:
        raise UsageError(
            f"malleable top needs the Python package textual ({error}): pip install textual"
        ) from error
    settings = load(arguments.settings)
    Top(lambda: tick(live(settings), settings, is_dry=True), arguments.every, caller()).run()
    return 0


def _data(report: TickReport) -> dict[str, Any]:
    seen = report.snapshot
    holes = [
        {"node": name, "end": claim.start, "source": claim.kind, "by": claim.by}
        for name, claim in idle_claims(seen).items()
    ]
    plan = plan_data(report.plan, report.at)
    return {
        "at": report.at,
        "jobs": seen.jobs,
        "holes": holes,
        "unused": report.unused,
        "plan": plan,
    }


def _print(board: Board) -> None:
    """Print the board as text, a table below another."""
    print_lines(out, board.summary)
    jobs = fitted(Rows("jobs", JOB_COLUMNS, board.jobs), out.width)
    leases = Rows("leases", LEASE_COLUMNS, board.leases)
    holes = Rows("holes", HOLE_COLUMNS, board.holes)
    actions = Rows("next tick", ("action",), tuple((action,) for action in board.actions))
    for rows in (jobs, leases, holes, actions):
        if rows.rows:
            print_tables(out, "", table_of(rows))
