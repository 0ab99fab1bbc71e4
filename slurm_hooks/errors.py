"""The errors of the package: one base, and each leaf says by its exit code whether to try again.

A message says what was tried, on what, what was seen and what to do about it.
"""

from __future__ import annotations


class MalleableError(Exception):
    """Base of every error that this package raises on purpose."""

    exit_code = 70  # sysexits EX_SOFTWARE: a bug unless a leaf says otherwise


class RetryLater(MalleableError):
    """Slurm did not answer in time, or answered that it is busy; the next tick may succeed."""

    exit_code = 75  # EX_TEMPFAIL


class NoTickForLong(MalleableError):
    """No tick has been completed for minutes: somebody has to look."""

    exit_code = 69  # EX_UNAVAILABLE


class SettingsError(MalleableError):
    """The settings file is missing, unreadable or wrong; every fault is in `faults`."""

    exit_code = 78  # EX_CONFIG

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


class CommandRefused(MalleableError):
    """Slurm understood a command and refused it (permission, unknown job, wrong state)."""

    exit_code = 77  # EX_NOPERM


class UsageError(MalleableError):
    """The user asked for something that does not exist or cannot be done."""

    exit_code = 64  # EX_USAGE


class MissingProgram(MalleableError):
    """A program that this host needs is not installed; the message names the package."""

    exit_code = 69  # EX_UNAVAILABLE


class UnreadableOutput(MalleableError):
    """Slurm printed something that this version cannot read; nothing was changed."""

    exit_code = 76  # EX_PROTOCOL
