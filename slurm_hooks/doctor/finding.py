"""The findings of a check: severity, observation, and lines to write. Values only."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Optional, Union

from slurm_hooks.doctor.facts import Facts, Line


class Severity(enum.Enum):
    """The severity of a finding."""

    NOTE = "note"  # information only
    WARNING = "warning"  # works, but worse than it could, or not for all users
    ERROR = "error"  # a promise is broken, or malleable jobs do not work at all


class Category(enum.Enum):
    """The groups in which findings are shown, in this order."""

    BASICS = "basics"
    PREEMPTION = "preemption"
    PARTS = "parts of nodes"
    ENDING = "how jobs end"
    LIMITS = "limits"
    SCHEDULER = "scheduler"
    SUBMISSION = "submission"
    PLUGIN = "plugin"
    HOOKS = "prolog and epilog"
    TICK = "tick"
    NODE = "compute node"
    PYTHON = "users' Python"
    JOB = "job"
    SITE = "checks of this site"


@dataclass(frozen=True)
class Change:
    """A key of slurm.conf that should have another value.

    `owner` is the beginning of its line if the key is a word within a line, like
    `PartitionName=main`, else empty.
    """

    key: str
    value: str
    owner: str = ""
    then: str = "scontrol reconfigure"


@dataclass(frozen=True)
class Paste:
    """A line that should be in a file, `instead` of another line if given.

    `place` is the place in the file, `then` the next step.
    """

    file: str
    line: str
    place: str = ""
    then: str = ""
    instead: Optional[Line] = None


@dataclass(frozen=True)
class Run:
    """A command to run, and its user if that matters. `is_first`: before slurmctld restarts."""

    command: str
    who: str = ""
    is_first: bool = False


Fix = Union[Change, Paste, Run]


@dataclass(frozen=True)
class Finding:
    """An observation and its remedy: lines to paste, or a sentence of `advice`.

    `is_missing` marks a fault that counts as a note only until the package is installed.
    """

    severity: Severity
    seen: str
    fixes: tuple[Fix, ...] = ()
    advice: str = ""
    is_missing: bool = False

    @property
    def is_to_do(self) -> bool:
        """True if malleable jobs need the remedy. The remedy of a plain note is optional."""
        return self.is_missing or self.severity is not Severity.NOTE


Look = Callable[[Facts], Iterable[Finding]]


@dataclass(frozen=True)
class Check:
    """A question. Its `id` never changes, since people use it and docs link to it.

    `title` is true if all is well, `why` describes the harm otherwise. With `is_ours` it checks a
    part of this package, which is missing before the installation. `source` is the entry point of a
    site's own check.
    """

    id: str
    category: Category
    title: str
    why: str
    look: Look
    is_ours: bool = False
    source: str = ""


def note(seen: str, *fixes: Fix, advice: str = "") -> Finding:
    """A finding for information only."""
    return Finding(Severity.NOTE, seen, fixes, advice)


def warning(seen: str, *fixes: Fix, advice: str = "") -> Finding:
    """A finding on a site that works, but badly."""
    return Finding(Severity.WARNING, seen, fixes, advice)


def error(seen: str, *fixes: Fix, advice: str = "") -> Finding:
    """A finding on a site that does not work, or breaks a promise."""
    return Finding(Severity.ERROR, seen, fixes, advice)
