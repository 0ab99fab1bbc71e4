"""`malleable status` and `malleable explain JOBID` where nothing is installed: what squeue says of
the user's own jobs that `malleable submit` made.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Optional

from slurm_hooks.elastic.batch.command import ask
from slurm_hooks.elastic.private_directory import DirectoryError
from slurm_hooks.elastic.selfservice.notes import Notes
from slurm_hooks.elastic.selfservice.plan import load
from slurm_hooks.protocol.request import Request

FORMAT = "%F|%K|%T|%r|%S|%e|%N|%j|%o"  # a user writes the last two
HEADS = ("JOBID", "NAME", "STATE", "SIZE", "MIN-MAX", "WAITING")
ELEMENT_HEADS = ("ELEMENT", "STATE", "NODE", "UNTIL", "WAITS FOR")
_FIELDS = 7  # before the name
_OURS = re.compile(r"(.*)\|((?:/.*)?/\.malleable-[0-9]+/submitted/plan-[0-9a-f]+)/batch(?: .*)?")
GIVEN_BACK = "BeginTime"
_WORDS = {
    GIVEN_BACK: "the rest after it was given back",
    "JobHeldUser": "`scontrol release`: you hold it",
    "Resources": "an idle node",
    "Priority": "an idle node, behind others",
    "None": "",
}


class Element(NamedTuple):
    """An element of such a job, in squeue's words."""

    job: str
    number: str
    state: str
    reason: str
    starts: str
    ends: str
    node: str
    name: str
    folder: str


def elements(said: str) -> list[Element]:
    """Return the elements that `malleable submit` made, from squeue's answer."""
    own = []
    for line in said.splitlines():
        words = line.split("|", _FIELDS)
        # A batch script of ours that a user has submitted by hand is no array.
        is_element = len(words) > _FIELDS and words[1].isdigit()
        if is_element and (ours := _OURS.fullmatch(words.pop())):
            own.append(Element._make([*words, ours[1], ours[2]]))
    return own


def summary(
    own: Sequence[Element], request: Optional[Request], notes: Optional[Notes]
) -> tuple[str, ...]:
    """Return the line of a job in `status`. What cannot be read is `None`."""
    runs = sum(element.state == "RUNNING" for element in own)
    size = runs * (request.unit if request else 1)
    sizes = f"{request.smallest}-{request.largest}" if request else "?"
    waits = Counter(_why(element, notes) for element in own if element.state == "PENDING")
    why = ", ".join(f"{count} for {what}" for what, count in waits.most_common())
    state = "running" if runs else "waiting"
    return own[0].job, own[0].name, state, str(size), sizes, why


def has_jobs(job: str = "") -> bool:
    """Tell whether `malleable submit` made this job of the user, or any."""
    return any(element.job == job or not job for element in _asked("--me") or ())


def list_jobs(words: Sequence[str]) -> int:
    """Print a line for each of the user's jobs."""
    if words:
        sys.stderr.write("usage: malleable status\n")
        return os.EX_USAGE
    known = _asked("--me")
    if known is None:
        return 1
    jobs = {element.job: [e for e in known if e.job == element.job] for element in known}
    lines = (summary(own, _request(own[0].folder), _notes(own)) for own in jobs.values())
    if not jobs:
        print("you have no job that `malleable submit` made")
        return 0
    _print([HEADS, *lines])
    return 0


def list_elements(words: Sequence[str]) -> int:
    """Print a line for each element of a job."""
    if len(words) != 1 or not words[0].isdigit():
        sys.stderr.write("usage: malleable explain JOBID\n")
        return os.EX_USAGE
    asked = _asked("--me")
    if asked is None:
        return 1
    known = [element for element in asked if element.job == words[0]]
    if not known:
        print(f"{words[0]} is no job of yours that `malleable submit` made, or it has ended")
        return 1
    notes = _notes(known)
    job, name, state, size, sizes, _ = summary(known, _request(known[0].folder), notes)
    print(f"job {job} ({name}): {state}, size {size}, MIN-MAX {sizes}")
    rows = sorted(known, key=lambda element: int(element.number))
    _print([ELEMENT_HEADS, *(_row(element, notes) for element in rows)])
    return 0


def why_back(number: int, notes: Notes, now: float) -> str:
    """Return why an element was given back, by the notes of its job, empty if they do not say."""
    if failures := notes.failures(number):
        return f"another try: it has failed {failures} time{'s' * (failures > 1)}, see its log"
    return "enough idle nodes for MIN" if now < notes.rests_until() else ""


def _row(element: Element, notes: Optional[Notes]) -> tuple[str, ...]:
    is_pending = element.state == "PENDING"
    estimate = f" (Slurm expects {element.starts})" if element.starts not in ("N/A", "") else ""
    why = f"{_why(element, notes)}{estimate}" if is_pending else ""
    until = "" if is_pending else element.ends
    return element.number, element.state.lower(), element.node, until, why


def _why(element: Element, notes: Optional[Notes]) -> str:
    is_back = element.reason == GIVEN_BACK
    own = why_back(int(element.number), notes, time.time()) if notes and is_back else ""
    return own or _WORDS.get(element.reason, element.reason)


def _asked(which: str) -> Optional[list[Element]]:
    said, why = ask("squeue", "--noheader", "--array", which, f"--format={FORMAT}")
    if why:
        sys.stderr.write(f"malleable: {why}\n")
        return None
    return elements(said)


def _request(folder: str) -> Optional[Request]:
    with suppress(OSError, DirectoryError, ValueError, TypeError, LookupError):
        return load(Path(folder) / "plan.json").wanted
    return None


def _notes(own: Sequence[Element]) -> Optional[Notes]:
    """Return the notes of a job with these elements, if one of them was given back."""
    if not any(element.reason == GIVEN_BACK for element in own):
        return None
    job = own[0].job
    work, _ = ask("squeue", "--noheader", f"--job={job}", "--format=%Z")
    with suppress(OSError, DirectoryError, ValueError, TypeError, LookupError):
        plan = load(Path(own[0].folder) / "plan.json")
        return Notes(plan.directory(Path(work.partition("\n")[0]), int(job)))
    return None


def _print(rows: Iterable[Sequence[str]]) -> None:
    lines = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("  ".join(word.ljust(width) for word, width in zip(line, widths)).rstrip())
