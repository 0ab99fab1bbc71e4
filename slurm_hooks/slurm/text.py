"""Slurm's way of writing commands, times, limits and host lists. Must not run anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Optional

from ClusterShell.NodeSet import NodeSet


@dataclass(frozen=True)
class Command:
    """A program with its arguments and standard input; `rpcs` says how many RPCs it makes.

    With a `patience_s` it is ended after so many seconds and its answer is not looked at: whether
    it worked is seen in the next tick.
    """

    argv: tuple[str, ...]
    stdin: str = ""
    rpcs: int = 1
    patience_s: float = 0.0


def parse_time(text: str) -> Optional[datetime]:
    """A moment printed with SLURM_TIME_FORMAT=%s; None for none. Raises ValueError otherwise."""
    if text in ("", "N/A", "Unknown", "None", "NONE"):
        return None
    try:
        return datetime.fromtimestamp(int(text), timezone.utc)
    except (OverflowError, OSError) as error:
        raise ValueError(f"not a moment: {text!r}") from error


def parse_limit(text: str) -> Optional[timedelta]:
    """A time limit, [days-]hours:minutes:seconds with leading parts left out; None for none."""
    if text in ("", "UNLIMITED", "NOT_SET", "INVALID", "N/A", "Partition_Limit"):
        return None
    days, _, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if len(parts) > 3:
        raise ValueError(f"not a time limit: {text!r}")
    hours, minutes, seconds = [0] * (3 - len(parts)) + parts
    return timedelta(days=int(days or 0), hours=hours, minutes=minutes, seconds=seconds)


def expand(names: str) -> frozenset[str]:
    """Node names of a Slurm host list; empty for none. Raises NodeSetParseError."""
    if names in ("", "(null)", "N/A", "None"):
        return frozenset()
    return frozenset(NodeSet(names))


def fold(names: Iterable[str]) -> str:
    """A Slurm host list for node names."""
    return str(NodeSet.fromlist(sorted(names)))
