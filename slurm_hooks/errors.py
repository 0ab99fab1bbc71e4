"""The errors of the package, and the exit codes of its commands, which the man page prints.

All errors share a base. The exit code of each leaf says whether to try again. A message has the
attempt and its object, the fault that was seen, and the remedy.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable, Mapping


class Exit(enum.IntEnum):
    """The result of a command. The numbers from 64 on come from sysexits.h."""

    DONE = 0
    FOUND = 1
    ERRORS = 2
    TO_DO = 3
    USAGE = 64
    BAD_DATA = 65
    UNAVAILABLE = 69
    BUG = 70
    FILE = 74
    RETRY = 75
    UNREADABLE = 76
    NOT_ALLOWED = 77
    SETTINGS = 78
    INTERRUPTED = 130


MEANINGS: Mapping[Exit, str] = {
    Exit.DONE: "Success. For doctor: all is well.",
    Exit.FOUND: "The command did its work, and the answer is bad: a step of test failed, a task of "
    "map failed, render lua --check found something, or doctor has warnings.",
    Exit.ERRORS: "doctor found errors.",
    Exit.TO_DO: "doctor --pre found no fault, and lists the steps that are left.",
    Exit.USAGE: "The words are wrong: no such command, option, job or name, or Slurm refused the "
    "request.",
    Exit.BAD_DATA: "The log that replay reads is damaged.",
    Exit.UNAVAILABLE: "A program is missing, or no tick has been completed for three intervals and "
    "five minutes.",
    Exit.BUG: "A bug.",
    Exit.FILE: "A file could not be read or written.",
    Exit.RETRY: "Slurm did not answer or refused a change, or another tick runs: try again later.",
    Exit.UNREADABLE: "Slurm printed something that this version cannot read.",
    Exit.NOT_ALLOWED: "This user is not allowed to do this. The message says which user is.",
    Exit.SETTINGS: "The settings are invalid.",
    Exit.INTERRUPTED: "The command was interrupted.",
}


class MalleableError(Exception):
    """Base of every error that this package raises on purpose."""

    exit_code = Exit.BUG  # unless a leaf sets another


class RetryLater(MalleableError):
    """Slurm did not answer in time, or was busy. The next tick may succeed."""

    exit_code = Exit.RETRY


class NoTickForLong(MalleableError):
    """No tick has been completed for minutes. An administrator must check why."""

    exit_code = Exit.UNAVAILABLE


class SettingsError(MalleableError):
    """The settings file is missing, unreadable or wrong. Every fault is in `faults`."""

    exit_code = Exit.SETTINGS

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


class CommandRefused(MalleableError):
    """Slurm understood a command and refused it: unknown job, wrong state, wrong option.

    `said` is Slurm's own text, if it is known apart from the message.
    """

    exit_code = Exit.USAGE

    def __init__(self, message: str, said: str = "") -> None:
        super().__init__(message)
        self.said = said or message


class NotAllowed(CommandRefused):
    """This user may not do it. The message says which user may."""

    exit_code = Exit.NOT_ALLOWED


class UsageError(MalleableError):
    """The user asked for something that does not exist or cannot be done."""

    exit_code = Exit.USAGE


class MissingProgram(MalleableError):
    """A program that this host needs is not installed. The message names the package."""

    exit_code = Exit.UNAVAILABLE


class UnreadableOutput(MalleableError):
    """Slurm printed a text that this version cannot read. The cluster was not changed."""

    exit_code = Exit.UNREADABLE


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a suggestion for a mistyped word, or an empty text if no known word is similar."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
