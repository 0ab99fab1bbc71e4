"""`malleable doctor`: find the faults of a site, and print the lines that mend them; read-only."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from slurm_hooks.commands.console import add_command, job_id, out
from slurm_hooks.doctor import manual
from slurm_hooks.doctor.catalogue import CHECKS, Wish, choose, site_checks
from slurm_hooks.doctor.finding import Category, Check
from slurm_hooks.doctor.gather.site import Asked, gather
from slurm_hooks.doctor.remedies import Remedies
from slurm_hooks.doctor.run import exit_code, run
from slurm_hooks.doctor.text import Shown, data, explained, in_rows, lines, listed, listing
from slurm_hooks.errors import UsageError
from slurm_hooks.report.json_data import json_text

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands

STYLES = {
    "ok": "green",
    "note": "cyan",
    "warning": "yellow",
    "error": "bold red",
    "skipped": "dim",
    "category": "bold",
    "paste": "bold",
}


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    text = "find the faults of this site, and print the lines that mend them"
    parser = add_command(commands, "doctor", _doctor, text)
    parser.add_argument(
        "checks", nargs="*", metavar="CHECK", help="run only these checks, or check a JOBID"
    )
    parser.add_argument(
        "--pre", action="store_true", help="before installation: print the lines to add"
    )
    parser.add_argument("--node", action="store_true", help="check this compute node")
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="with --node: the shared directory of jobs (default: from dir=, else here)",
    )
    parser.add_argument("--python", default="", metavar="PATH", help="check this interpreter")
    parser.add_argument("--job", metavar="JOBID", help="check this job, and explain its size")
    parser.add_argument(
        "--explain", action="store_true", help="print the text of each CHECK and end"
    )
    parser.add_argument("--list", action="store_true", help="print all checks and end")


def _doctor(arguments: argparse.Namespace) -> int:
    checks = (*CHECKS, *site_checks())
    if arguments.list or arguments.explain:
        return _describe(checks, arguments)
    names = tuple(word for word in arguments.checks if not word[:1].isdigit())
    job = _job(arguments, names)
    is_node = arguments.node or arguments.directory is not None
    has_directory = arguments.directory is not None
    wish = Wish(names, is_node, has_directory, bool(arguments.python), job is not None)
    chosen = choose(wish, checks)
    is_linked = any(check.category is Category.NODE for check in chosen)
    asked = Asked(arguments.settings, is_linked, arguments.directory, arguments.python, job)
    facts = gather(asked)
    if facts.settings_faults and names and "settings" not in names:
        chosen = (*choose(Wish(("settings",)), CHECKS), *chosen)  # the others use the defaults
    outcomes = run(chosen, facts, arguments.pre)
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    remedies = Remedies(findings, facts.slurm, facts.conf)
    if arguments.json:
        print(json_text(data(outcomes, remedies, manual.place()), indent=1))
    else:
        show(lines(outcomes, remedies, manual.place()))
    return exit_code(outcomes)


def _job(arguments: argparse.Namespace, names: tuple[str, ...]) -> int | None:
    """The job that was named as a word or by --job. Raises UsageError for several."""
    words = [word for word in (arguments.job, *arguments.checks) if word and word not in names]
    if len(words) > 1:
        raise UsageError(f"give a single job, not {len(words)}")
    return job_id(words[0]) if words else None


def _describe(checks: tuple[Check, ...], arguments: argparse.Namespace) -> int:
    names = tuple(arguments.checks)
    chosen = choose(Wish(names), checks) if names else checks
    if arguments.json:
        print(json_text({"checks": listed(chosen, manual.place())}, indent=1))
    else:
        show(explained(chosen, manual.place()) if arguments.explain else listing(chosen))
    return 0


def show(shown: Iterable[Shown]) -> None:
    """Print lines: unchanged for programs, in colours and folded on a terminal."""
    for line in in_rows(shown, out.width) if out.is_terminal else shown:
        style = Style.parse(STYLES.get(line.style, ""))
        out.print(Text(line.text, style=style), soft_wrap=True)
