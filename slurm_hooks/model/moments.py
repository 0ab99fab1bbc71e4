"""Moments, durations, numbers and sizes: a single way to print each, and to read typed input.

People see their local time with its zone. Programs see ISO 8601 in UTC.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Optional

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
LONGEST_S = 10**11
A_SPAN = "90, 90s, 30m, 2h30m, 1:30:00 or 7d"
A_MOMENT = (
    "90s, 30m, 2h30m, 1:30:00 or 7d (ago), now, today, yesterday, or a date such as 2026-03-01 or "
    "2026-03-01T08:00"
)
_NUMBER = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)
_PARTS = re.compile(r"(\d{1,9}[smhdw])+", re.ASCII)
_CLOCK = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{2})", re.ASCII)


def moment(seconds: float) -> datetime:
    """A moment from epoch seconds."""
    return datetime.fromtimestamp(seconds, timezone.utc)


def local(when: datetime) -> datetime:
    """The moment in local time. A naive moment is local already. The result is in UTC where TZ is a
    day or more away from UTC: the C library accepts that, Python does not."""
    try:
        return when.astimezone()
    except ValueError:
        is_naive = when.tzinfo is None
        return when.replace(tzinfo=timezone.utc) if is_naive else when.astimezone(timezone.utc)


def shown(when: datetime, now: Optional[datetime] = None) -> str:
    """Local time with its zone, and the date unless that is the date of `now`."""
    there = local(when)
    is_today = now is not None and there.date() == local(now).date()
    return f"{there:%H:%M:%S %Z}" if is_today else f"{there:%Y-%m-%d %H:%M:%S %Z}"


def iso(when: datetime) -> str:
    """ISO 8601 in UTC."""
    return when.astimezone(timezone.utc).isoformat()


def read_span(text: str) -> float:
    """The seconds of a duration such as 90, 90s, 2h30m, 7d, or Slurm's 1:30:00 and 1-00:00:00.

    Raises ValueError.
    """
    if _NUMBER.fullmatch(text):
        seconds = float(text)
    elif _PARTS.fullmatch(text):
        seconds = sum(int(part[:-1]) * UNITS_S[part[-1]] for part in re.findall(r"\d+\w", text))
    elif clock := _CLOCK.fullmatch(text):
        days, hours, minutes, rest = (int(part or 0) for part in clock.groups())
        seconds = days * UNITS_S["d"] + hours * UNITS_S["h"] + minutes * 60 + rest
    else:
        raise ValueError(f"{text[:40]!r} is not a duration: write {A_SPAN}")
    if seconds > LONGEST_S:
        raise ValueError(f"{text[:40]!r} is too long")
    return seconds


def read_moment(text: str, now: datetime) -> datetime:
    """A moment: `now`, `yesterday`, a duration before now, or ISO 8601, local if it names no zone.

    Raises ValueError.
    """
    if text == "now":
        return now
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if text in ("today", "yesterday"):
        return midnight - timedelta(days=text == "yesterday")
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d.*", text, re.ASCII):
            return local(datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text)))
        if re.fullmatch(r"\d+", text):
            raise ValueError("a number without its unit")
        return now - timedelta(seconds=read_span(text))
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"{text[:40]!r} is not a moment: write {A_MOMENT}") from error


def age_text(seconds: float) -> str:
    """A span in words, roughly."""
    for size, word in ((172_800, "day"), (7200, "hour"), (120, "minute")):
        if seconds >= size:
            number = round(seconds / {"day": 86_400, "hour": 3600, "minute": 60}[word])
            return f"{number} {word}s"
    return plural(round(max(seconds, 0)), "second")


def plural(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`, `2 classes`. Of several words the last is the noun."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}{'es' if noun.endswith('s') else 's'}"


def noun_of(unit: str) -> str:
    """The noun for the unit of a job's sizes."""
    return "GPU" if unit == "gpu" else unit


def sized(number: int, unit: str) -> str:
    """A size of a job: `8 nodes`, `8 GPUs`, `8 tasks`."""
    return plural(number, noun_of(unit))
