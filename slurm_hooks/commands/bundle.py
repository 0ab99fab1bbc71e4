"""`malleable bundle`: collect a bug report in an archive, without the names of the site."""

from __future__ import annotations

import argparse
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_hooks.commands.console import add_command, add_output, out
from slurm_hooks.doctor import manual
from slurm_hooks.doctor.bundle import Part, Seen, parts, write
from slurm_hooks.doctor.catalogue import CHECKS, Wish, choose, site_checks
from slurm_hooks.doctor.facts import Unread
from slurm_hooks.doctor.gather.report import find_versions, read_journal, take_snapshot
from slurm_hooks.doctor.gather.site import Asked, gather
from slurm_hooks.doctor.remedies import Remedies
from slurm_hooks.doctor.run import run
from slurm_hooks.doctor.text import data
from slurm_hooks.errors import UsageError
from slurm_hooks.report.json_data import json_text
from slurm_hooks.report.tables import print_lines

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    text = "collect a bug report in an archive, with names replaced"
    parser = add_command(commands, "bundle", _bundle, text)
    add_output(parser, "write to FILE (default: a new file in this directory)")


def _bundle(arguments: argparse.Namespace) -> int:
    path = arguments.output or Path(time.strftime("malleable-bundle-%Y%m%d-%H%M%S.tar.gz"))
    contents = parts(_see(arguments.settings), secrets.token_bytes(16))
    if not arguments.json:
        print_lines(out, [f"{path} will contain:", *map(_line, contents)])
    try:
        size = write(path, contents)
    except FileExistsError as error:
        raise UsageError(f"{path} exists already: name another file with --output") from error
    if arguments.json:
        names = [part.name for part in contents if not isinstance(part.text, Unread)]
        print(json_text({"file": str(path), "bytes": size, "contains": names}))
    else:
        print_lines(out, [f"written: {path}, {size} bytes; read it before you send it"])
    return 0


def _line(part: Part) -> str:
    if isinstance(part.text, Unread):
        return f"  {part.name:20} left out: {part.text.because}"
    return f"  {part.name:20} {part.what} ({len(part.text)} characters)"


def _see(settings: Path | None) -> Seen:
    checks = choose(Wish(), (*CHECKS, *site_checks()))
    facts = gather(Asked(settings))
    outcomes = run(checks, facts, is_before=False)
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    remedies = Remedies(findings, facts.slurm, facts.conf)
    return Seen(
        facts,
        data(outcomes, remedies, manual.place()),
        take_snapshot(facts),
        find_versions(facts),
        read_journal(facts),
    )
