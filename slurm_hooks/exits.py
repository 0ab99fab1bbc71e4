"""The exit codes of all commands, in one table; the man page prints it."""

from __future__ import annotations

import enum
from collections.abc import Mapping


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
