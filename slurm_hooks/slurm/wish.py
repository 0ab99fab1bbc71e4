"""`wish{N,T}`: how many nodes a job wants, among the entries at the head of its Comment.

A user can write anything there: what is not as our commands write it is no wish. Which wish of a
job counts, and how much of it, is judged in model/wish.py.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Optional

from slurm_hooks.model import Wish

_ENTRY = r"[a-z]{1,16}\{[^{};]*\}r?;"  # the r is of h{600}r
_WISH = r"wish\{(\d{1,5}),(\d{1,11})\}(?:;|\Z)"
_FOUND = re.compile(rf"(?:{_ENTRY})*?{_WISH}", re.ASCII)
_FIRST = re.compile(_WISH, re.ASCII)


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
