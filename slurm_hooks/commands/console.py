"""Code that all commands share: the consoles, the log, common arguments, access to Slurm."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import pwd
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from rich.logging import RichHandler

from slurm_hooks.errors import Exit, MissingProgram, UsageError
from slurm_hooks.model import MalleableJob, Snapshot
from slurm_hooks.report.json_data import error_text
from slurm_hooks.report.tables import print_lines, terminal
from slurm_hooks.report.text import find_job
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.live import Live, Port, WithLibrary
from slurm_hooks.slurm.strays import unknown_text

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

LONGEST_ID = 18  # digits: far more than Slurm uses, and as many as SQLite accepts
out = terminal()
err = terminal(is_stderr=True)


def add_command(
    commands: Commands,
    name: str,
    command: Callable[[argparse.Namespace], int],
    text: str,
    job: str = "",
) -> argparse.ArgumentParser:
    """Add a command that can print JSON. `job` is "optional" or "needed" if it takes a JOBID."""
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    if job:
        add_job(parser, is_needed=job == "needed")
    add_json(parser)
    add_settings(parser)
    parser.set_defaults(command=command)
    return parser


def add_job(parser: argparse.ArgumentParser, is_needed: bool = False) -> None:
    """Add the job, as a word or as --job."""
    forms = parser.add_mutually_exclusive_group(required=is_needed)
    forms.add_argument(
        "job", metavar="JOBID", nargs="?", default=argparse.SUPPRESS, help="id of the job"
    )
    forms.add_argument("--job", metavar="JOBID", dest="job", help="id of the job, as an option")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option for programs."""
    parser.add_argument("--json", action="store_true", help="print a JSON object instead of text")


def add_output(parser: argparse.ArgumentParser, text: str, name: str = "--output") -> None:
    """Add the option that names the file to write."""
    parser.add_argument("-o", name, type=Path, metavar="FILE", help=text)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the option that names another settings file."""
    parser.add_argument("--settings", type=Path, metavar="FILE", help="use this settings file")


@contextlib.contextmanager
def debug_lines(is_wanted: bool) -> Iterator[None]:
    """The package's log on standard error: with colours on a terminal, else plain lines."""
    if not is_wanted:
        yield
        return
    log = logging.getLogger("slurm_hooks")
    handler = (
        RichHandler(console=err, show_path=False)
        if err.is_terminal
        else logging.StreamHandler(sys.stderr)
    )
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        log.setLevel(before)
        log.removeHandler(handler)


def failed(code: Exit, text: str, is_json: bool) -> Exit:
    """Print a line for each fault on standard error, and for programs also on standard output.
    Return the exit code."""
    lines = text.splitlines()
    print_lines(err, [f"malleable: {line}" for line in lines])
    if is_json:
        with contextlib.suppress(OSError):  # standard output may be the fault
            print(error_text(code, lines), flush=True)
    return code


def live(settings: Settings) -> Port:
    """This host's Slurm. Raises MissingProgram if tick.port wants pyslurm and there is none."""
    commands = Live(settings.tick.command_timeout_s, settings.tick.slurm_bin)
    if settings.tick.port == "commands":
        return commands
    if find_spec("pyslurm") is None:
        raise MissingProgram(
            f"tick.port is pyslurm, which {sys.executable} cannot import: install the pyslurm of "
            "this Slurm's release (pip install pyslurm), or set tick.port to commands"
        )
    return WithLibrary(commands)


def job_id(text: str) -> int:
    """The number of an array, from Slurm's name of it or of an element. Raises UsageError."""
    head = text.split("_", 1)[0]
    if not (head.isascii() and head.isdigit()) or len(head) > LONGEST_ID:
        raise UsageError(f"{text!r} is not a job id: give the number that sbatch printed")
    return int(head)


def whole_job(text: str, command: str) -> int:
    """The number of an array, for a command that changes the whole array. Raises UsageError for a
    fragment."""
    job = job_id(text)
    if "_" in text:
        raise UsageError(f"{command} takes a job, not a fragment: malleable {command} {job}")
    return job


def caller() -> str:
    """The name of the user who runs this. Raises UsageError for a uid without a name, as in some
    containers."""
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError as error:
        raise UsageError(
            f"this host has no name for user {uid}, and Slurm needs a name: run this as a user "
            "that `getent passwd` lists"
        ) from error


def known_job(snapshot: Snapshot, text: str) -> MalleableJob:
    """The job that the user named. Raises UsageError if Slurm does not know it."""
    job = find_job(snapshot, job_id(text))
    if job is None:
        raise UsageError(unknown_text(job_id(text), snapshot.unknown, text))
    return job
