"""What a check says: a finding with its severity, and what to write where. Values only."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Optional, Union

from slurm_hooks.doctor.facts import Facts, Line


class Severity(enum.Enum):
    """How much a finding matters."""

    NOTE = "note"  # worth knowing, nothing to do
    WARNING = "warning"  # works, but worse than it could, or not for everybody
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

    `owner` is the beginning of its line if the key is a word of a longer one, like
    `PartitionName=main`, else empty.
    """

    key: str
    value: str
    owner: str = ""
    then: str = "scontrol reconfigure"


@dataclass(frozen=True)
class Paste:
    """A line that should be in a file, `instead` of another if that is given.

    `place` says where in it, `then` what to run after.
    """

    file: str
    line: str
    place: str = ""
    then: str = ""
    instead: Optional[Line] = None


@dataclass(frozen=True)
class Run:
    """A command to run, as whom if that matters; one that `is_first` before slurmctld restarts."""

    command: str
    who: str = ""
    is_first: bool = False


Fix = Union[Change, Paste, Run]


@dataclass(frozen=True)
class Finding:
    """What was seen, and what to do about it: lines to paste, or a sentence of `advice`.

    `is_missing` marks a note that is one only because the package is not installed yet.
    """

    severity: Severity
    seen: str
    fixes: tuple[Fix, ...] = ()
    advice: str = ""
    is_missing: bool = False

    @property
    def is_to_do(self) -> bool:
        """Whether malleable jobs need it; what a plain note says is a matter of taste."""
        return self.is_missing or self.severity is not Severity.NOTE


Look = Callable[[Facts], Iterable[Finding]]


@dataclass(frozen=True)
class Check:
    """One question. Its `id` never changes: people name it, and docs link to it.

    `title` says what is so when all is well, `why` what goes wrong otherwise. With
    `is_ours` it asks about a part of this package, which is not there before the installation.
    """

    id: str
    category: Category
    title: str
    why: str
    look: Look
    is_ours: bool = False


def note(seen: str, *fixes: Fix, advice: str = "") -> Finding:
    """Worth knowing."""
    return Finding(Severity.NOTE, seen, fixes, advice)


def warning(seen: str, *fixes: Fix, advice: str = "") -> Finding:
    """Works, but badly."""
    return Finding(Severity.WARNING, seen, fixes, advice)


def error(seen: str, *fixes: Fix, advice: str = "") -> Finding:
    """Does not work, or breaks a promise."""
    return Finding(Severity.ERROR, seen, fixes, advice)
