"""The errors of the package: one base, and each leaf says by its exit code whether to try again.

A message says what was tried, on what, what was seen and what to do about it.
"""

from __future__ import annotations

from slurm_hooks.exits import Exit


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
