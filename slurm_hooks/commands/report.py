"""`malleable report`: report the use of idle nodes, from the ledger, read-only."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from slurm_hooks.commands.books import opened_ledger
from slurm_hooks.commands.console import add_command, add_output, err, out
from slurm_hooks.errors import UsageError
from slurm_hooks.history.harvest.totals import Query
from slurm_hooks.history.questions import totals
from slurm_hooks.model.moments import A_MOMENT, local, read_moment
from slurm_hooks.report.harvest_charts import picture
from slurm_hooks.report.harvest_html import page
from slurm_hooks.report.harvest_json import harvest_data
from slurm_hooks.report.harvest_text import harvest_view
from slurm_hooks.report.json_data import json_text
from slurm_hooks.report.tables import print_lines, print_tables
from slurm_hooks.settings.file import load

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands

_NOW = "now"


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    parser = add_command(commands, "report", _report, "report the use of idle nodes")
    parser.add_argument(
        "--since",
        default="7d",
        metavar="WHEN",
        help=f"begin at WHEN: {A_MOMENT} (default %(default)s)",
    )
    parser.add_argument(
        "--until", default=_NOW, metavar="WHEN", help="end at WHEN (default %(default)s)"
    )
    add_output(parser, "write a page (FILE.html) or a picture (FILE.png)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with charts")
    parser.add_argument("--png", type=Path, metavar="FILE", help="write a picture")
    parser.add_argument("--user", default="", metavar="USER", help="count only this user's jobs")
    parser.add_argument(
        "--account", default="", metavar="NAME", help="count only this account's jobs"
    )


def _report(arguments: argparse.Namespace) -> int:
    settings, page_file, picture_file = load(arguments.settings), *_files(arguments)
    now = local(datetime.now(timezone.utc))  # noqa: TID251  (--since counts from here)
    query = _query(arguments, now)
    with opened_ledger(settings) as ledger:
        counts = totals(ledger, query)
    if arguments.user and not counts.jobs and not arguments.json:
        print_lines(err, [f"note: there is no job of user {arguments.user} in this time"])
    if page_file:
        page_file.write_text(page(counts), encoding="utf-8")
    if picture_file:
        picture(picture_file, counts)
    if arguments.json:
        print(json_text(harvest_data(counts)))
    elif written := list(filter(None, (page_file, picture_file))):
        print_lines(out, [f"written: {path}" for path in written])
    else:
        print_tables(out, harvest_view(counts))
    return 0


def _files(arguments: argparse.Namespace) -> tuple[Optional[Path], Optional[Path]]:
    """The files for the page and the picture. Raises UsageError for a name with another ending."""
    named: Optional[Path] = arguments.output
    if named is None:
        return arguments.html, arguments.png
    if named.suffix not in (".html", ".png"):
        raise UsageError(f"{named}: give a name with the ending .html or .png")
    is_page = named.suffix == ".html"
    return (named, arguments.png) if is_page else (arguments.html, named)


def _query(arguments: argparse.Namespace, now: datetime) -> Query:
    """The span of the arguments. Raises UsageError if it is not a span."""
    try:
        since, until = (read_moment(text, now) for text in (arguments.since, arguments.until))
    except ValueError as error:
        raise UsageError(str(error)) from error
    if since >= until:
        end = "now" if arguments.until == _NOW else f"--until {arguments.until}"
        raise UsageError(f"--since {arguments.since} is not before {end}: give an earlier --since")
    return Query(since, until, arguments.user, arguments.account)
