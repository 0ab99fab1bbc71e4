"""Turn changes into lines to paste, with their places. Pure.

All changes of a line of slurm.conf go into the same new line, so that pasting the line of a finding
never undoes another finding. Only the note itself has the suggestion of a plain note.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.doctor.facts import Line, SlurmSays, Unread
from slurm_hooks.doctor.finding import Change, Finding, Fix, Paste, Run

_Changes = Mapping[str, dict[str, str]]


@dataclass(frozen=True)
class Remedy:
    """A line and where it belongs, or a command.

    With a `number` the line replaces `lines` lines from there on, which read `instead_of`.
    """

    file: str = ""
    line: str = ""
    number: int = 0
    lines: int = 0
    instead_of: str = ""
    place: str = ""
    then: str = ""
    command: str = ""
    who: str = ""
    is_first: bool = False


class Remedies:
    """Turns the fixes of all findings into remedies."""

    def __init__(
        self, findings: Iterable[Finding], slurm: SlurmSays | Unread, conf: Sequence[Line] | Unread
    ) -> None:
        self._path = "slurm.conf" if isinstance(slurm, Unread) else slurm.conf
        self._conf = () if isinstance(conf, Unread) else tuple(conf)
        self._changes = _by_owner(finding for finding in findings if finding.is_to_do)

    def of(self, finding: Finding) -> tuple[Remedy, ...]:
        """The remedies of a finding, in its order."""
        own = _by_owner([finding])
        return tuple(self._remedy(fix, own) for fix in finding.fixes)

    def _remedy(self, fix: Fix, own: _Changes) -> Remedy:
        if isinstance(fix, Run):
            return Remedy(command=fix.command, who=fix.who, is_first=fix.is_first)
        if isinstance(fix, Paste):
            if fix.instead is not None:
                return self._placed(fix.line, fix.instead, fix.then, fix.place)
            return Remedy(fix.file, fix.line, place=fix.place, then=fix.then)
        return self._word(fix, own) if fix.owner else self._setting(fix)

    def _setting(self, change: Change) -> Remedy:
        line = f"{change.key}={change.value}"
        pattern = re.compile(rf"\s*{re.escape(change.key)}\s*=", re.IGNORECASE)
        return self._placed(line, self._last(pattern), change.then, "")

    def _word(self, change: Change, own: _Changes) -> Remedy:
        owner_key, _, owner = change.owner.partition("=")
        pattern = re.compile(rf"\s*{owner_key}\s*=\s*{re.escape(owner)}(\s|$)", re.IGNORECASE)
        old = self._last(pattern)
        words = {**self._changes.get(change.owner, {}), **own[change.owner]}
        if old is None:
            pairs = " ".join(f"{key}={value}" for key, value in words.items())
            place = f"in the line that begins with {change.owner}"
            return Remedy(self._path, f"{change.owner} ... {pairs}", place=place, then=change.then)
        return self._placed(_changed(old.text, words), old, change.then, "")

    def _placed(self, line: str, old: Optional[Line], then: str, place: str) -> Remedy:
        if old is None:
            return Remedy(self._path, line, place=place, then=then)
        return Remedy(old.file, line, old.number, old.lines, old.text, place, then)

    def _last(self, pattern: re.Pattern[str]) -> Optional[Line]:
        """The last line that matches: Slurm uses the last of several settings."""
        return next((line for line in reversed(self._conf) if pattern.match(line.text)), None)


def _by_owner(findings: Iterable[Finding]) -> _Changes:
    changes: dict[str, dict[str, str]] = {}
    for finding in findings:
        for fix in finding.fixes:
            if isinstance(fix, Change):
                changes.setdefault(fix.owner, {})[fix.key] = fix.value
    return changes


def _changed(text: str, words: Mapping[str, str]) -> str:
    """The line with these words changed in place, or added at its end."""
    line = text
    for key, value in words.items():
        pattern = re.compile(rf"(?<=\s){re.escape(key)}=(\"[^\"]*\"|\S*)", re.IGNORECASE)
        new = f"{key}={value}"
        line = pattern.sub(new, line) if pattern.search(line) else f"{line} {new}"
    return line
