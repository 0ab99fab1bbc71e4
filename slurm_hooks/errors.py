"""The errors of the package, and the exit codes of its commands, which the man page prints.

There is one base, and each leaf says by its exit code whether to try again.

A message says what was tried, on what, what was seen and what to do about it.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable, Mapping


class Exit(enum.IntEnum):
    """How a command ended. From 64 on the numbers are those of sysexits.h."""

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
    Exit.USAGE: "The words are wrong: no such command, option, job or name, or Slurm refused what "
    "they ask for.",
    Exit.BAD_DATA: "The log that replay reads is damaged.",
    Exit.UNAVAILABLE: "A program is missing, or no tick has been completed for three intervals and "
    "five minutes.",
    Exit.BUG: "A bug.",
    Exit.FILE: "A file could not be read or written.",
    Exit.RETRY: "Slurm did not answer, or another tick is running: try again later.",
    Exit.UNREADABLE: "Slurm printed something that this version cannot read.",
    Exit.NOT_ALLOWED: "This user is not allowed to do this. The message says which user is.",
    Exit.SETTINGS: "The settings are invalid.",
    Exit.INTERRUPTED: "The command was interrupted.",
}


class MalleableError(Exception):
    """Base of every error that this package raises on purpose."""

    exit_code = Exit.BUG  # unless a leaf says otherwise


class RetryLater(MalleableError):
    """Slurm did not answer in time, or answered that it is busy; the next tick may succeed."""

    exit_code = Exit.RETRY


class NoTickForLong(MalleableError):
    """No tick has been completed for minutes: somebody has to look."""

    exit_code = Exit.UNAVAILABLE


class SettingsError(MalleableError):
    """The settings file is missing, unreadable or wrong; every fault is in `faults`."""

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
    """This user may not do it; the message says which user may."""

    exit_code = Exit.NOT_ALLOWED


class UsageError(MalleableError):
    """The user asked for something that does not exist or cannot be done."""

    exit_code = Exit.USAGE


class MissingProgram(MalleableError):
    """A program that this host needs is not installed; the message names the package."""

    exit_code = Exit.UNAVAILABLE


class UnreadableOutput(MalleableError):
    """Slurm printed something that this version cannot read; nothing was changed."""

    exit_code = Exit.UNREADABLE


def nearest(word: str, known: Iterable[str]) -> str:
    """A question about the word that was meant; empty if none of the known ones is like it."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
