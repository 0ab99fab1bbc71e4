"""`wish{N,T}`: how many nodes a job wants, among the entries at the head of its Comment.

A user can write anything there: what is not as our commands write it is no wish. Which wish of a
job counts, and how much of it, is judged in model/wish.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Optional

from slurm_hooks.model import Wish
from slurm_hooks.slurm.text import Command

_ENTRY = r"[a-z]{1,16}\{[^{};]*\}r?;"  # the r is of h{600}r
_WISH = r"wish\{(\d{1,5}),(\d{1,11})\}(?:;|\Z)"
_FOUND = re.compile(rf"(?:{_ENTRY})*?{_WISH}", re.ASCII)
_FIRST = re.compile(_WISH, re.ASCII)
_BEFORE = re.compile(
    r"(?:(?:started|waiting|joined|trained|leaving|apart|finished)\{\d{1,9}\}"
    r"(?:;h\{\d{1,5}\}r?)?(?:;|\Z))?",
    re.ASCII,
)
_ANYWHERE = re.compile(r"(?<![a-z])wish\{[^{}]*\};?")


def parse_wish(comment: str) -> Optional[Wish]:
    """The first wish among the entries at the beginning of a Comment; None if there is none."""
    found = _FOUND.match(comment)
    if not found:
        return None
    try:
        return Wish(datetime.fromtimestamp(int(found.group(2)), timezone.utc), int(found.group(1)))
    except (ValueError, OverflowError, OSError):
        return None


def without_wish(entries: str) -> str:
    """The entries without a wish at their beginning."""
    found = _FIRST.match(entries)
    return entries[found.end() :] if found else entries


def entry(wish: Wish) -> str:
    """As it is written."""
    return f"wish{{{wish.nodes},{int(wish.at.timestamp())}}}"


def with_wish(comment: str, wish: Wish) -> str:
    """The Comment with this wish in the place of another, behind where its fragment stands and what
    a hit costs; everything else in it stays."""
    text = "" if comment == "(null)" else comment
    found = _BEFORE.match(text)
    end = found.end() if found else 0
    first, rest = text[:end].rstrip(";"), text[end:]
    rest = _ANYWHERE.sub("", rest).strip("; ")
    return ";".join(part for part in (first, entry(wish), rest) if part)


def wish_commands(element: str) -> tuple[Command, Callable[[str], Command]]:
    """The question for the Comment of this element, and what writes another."""
    asked = Command(("squeue", "--noheader", f"--job={element}", "--format=%k"))

    def write(comment: str) -> Command:
        return Command(("scontrol", "update", f"JobId={element}", f"Comment={comment}"))

    return asked, write
