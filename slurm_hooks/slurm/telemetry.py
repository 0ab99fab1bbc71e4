"""Values in a job's Comment: `progress{...}`, its report of its speed, and its wish.

A user can write any text there. The reader returns a Telemetry with possible and bounded values, or
None. learning/reports.py judges the sizes and times of a report. The writer,
elastic/batch/progress_entry.py, describes the form. model/state.py judges which wish counts.
"""

from __future__ import annotations

import re
from typing import Optional

from slurm_hooks.model import Counts, Pauses, Rate, Telemetry, Wish
from slurm_hooks.model.moments import moment
from slurm_hooks.protocol.comment import PROGRESS_WIDTH, SIZES, Comment

_ENTRY = re.compile(r"progress\{([sn])(\d{1,12})((?:,[0-9py:/.e-]{1,40}){1,8})\}", re.ASCII)
_NUMBER = r"\d{1,7}(?:\.\d{1,8})?(?:e-?\d{1,2})?"
_RATE = re.compile(rf"(\d{{1,5}}):({_NUMBER})/(\d{{1,3}})/({_NUMBER})(?:/(\d{{1,7}}))?", re.ASCII)
_PAUSES = re.compile(r"p(\d{0,4})/(\d{0,4})/(\d{0,4})/(\d{0,4})", re.ASCII)
_SYNC = re.compile(r"y(\d{1,3})", re.ASCII)


def parse_progress(text: str) -> Optional[Telemetry]:
    """Return the telemetry in an entry at the head of this text, or None without an entry, or if
    any part is not in the agents' form."""
    entry = _ENTRY.match(text[:PROGRESS_WIDTH])
    if not entry:
        return None
    try:
        return _telemetry(entry)
    except (ValueError, OverflowError):
        return None


def _telemetry(entry: re.Match[str]) -> Optional[Telemetry]:
    newest = int(entry.group(2))
    rates: dict[int, Rate] = {}
    sync: Optional[float] = None
    pauses = Pauses()
    for word in entry.group(3)[1:].split(","):
        rate, paused, synced = (form.fullmatch(word) for form in (_RATE, _PAUSES, _SYNC))
        if rate:
            _add(rates, _rate(rate, newest))
        elif paused:
            pauses = Pauses(*(float(s) if s else None for s in paused.groups()))
        elif synced:
            sync = int(synced.group(1)) / 100
        else:
            return None
    if not 1 <= len(rates) <= SIZES:
        return None
    counts = Counts.SAMPLES if entry.group(1) == "s" else Counts.STEPS
    return Telemetry(tuple(sorted(rates.values(), key=lambda r: r.at)), counts, sync, pauses)


def _add(rates: dict[int, Rate], rate: Rate) -> None:
    """Add a rate. Raises ValueError for a size that has a rate already."""
    if rate.nodes in rates:
        raise ValueError(f"two rates of {rate.nodes} nodes")
    rates[rate.nodes] = rate


def _rate(match: re.Match[str], newest: int) -> Rate:
    nodes, per_s, error, batch, age_s = match.groups()
    at = max(0, newest - int(age_s or 0))
    return Rate(int(nodes), float(per_s), max(1, int(error)) / 1000, at, float(batch))


def wish_in(comment: Comment) -> Optional[Wish]:
    """Return the wish of a Comment, or None without a wish."""
    if comment.wish is None:
        return None
    try:
        at = moment(comment.wish.at)
        return Wish(at, comment.wish.nodes)
    except (ValueError, OverflowError, OSError):
        return None
