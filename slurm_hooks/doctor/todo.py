"""List all steps to do, each once and in an order that works. Pure.

The findings have the reasons, and repeat a line that mends several of them. This list is for
typing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from slurm_hooks.doctor.remedies import Remedies, Remedy
from slurm_hooks.doctor.run import Outcome

_T = TypeVar("_T")
RESTARTS = ("restart slurmctld", "scontrol reconfigure")


@dataclass(frozen=True)
class FileToDo:
    """The changes of a file: lines to replace, the last first, then lines to add."""

    file: str
    lines: tuple[Remedy, ...]


@dataclass(frozen=True)
class ToDo:
    """Files to edit, commands to run `first`, `then` the loading of the files, other `commands`.

    `in_words` are the checks whose remedy is a sentence.
    """

    files: tuple[FileToDo, ...]
    first: tuple[Remedy, ...]
    then: tuple[str, ...]
    commands: tuple[Remedy, ...]
    in_words: tuple[str, ...]

    @property
    def is_worth_telling(self) -> bool:
        """True for more than a single step: a single step was just printed."""
        return sum(len(one.lines) for one in self.files) + len(self.first + self.commands) > 1


def to_do(outcomes: Sequence[Outcome], remedies: Remedies) -> ToDo:
    """The steps of all findings except plain notes, which are optional."""
    due = [(o.check.id, f) for o in outcomes for f in o.findings if f.is_to_do]
    every = _unique(remedy for _, finding in due for remedy in remedies.of(finding))
    pasted = [remedy for remedy in every if not remedy.command]
    commands = [remedy for remedy in every if remedy.command]
    return ToDo(
        files=tuple(_file(name, pasted) for name in _unique(one.file for one in pasted)),
        first=tuple(one for one in commands if one.is_first),
        then=tuple(sorted(_unique(one.then for one in pasted if one.then), key=_rank)),
        commands=tuple(one for one in commands if not one.is_first),
        in_words=_unique(name for name, finding in due if not finding.fixes),
    )


def _unique(things: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(things))


def _file(name: str, pasted: Sequence[Remedy]) -> FileToDo:
    """Put the last line first, so that the numbers of the lines above it do not change."""
    own = [remedy for remedy in pasted if remedy.file == name]
    return FileToDo(name, tuple(sorted(own, key=lambda remedy: -remedy.number)))


def _rank(then: str) -> int:
    return RESTARTS.index(then) if then in RESTARTS else -1
