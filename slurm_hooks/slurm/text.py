"""Reads and writes commands, times, limits and host lists in Slurm's form."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import product
from typing import Optional

from ClusterShell.NodeSet import NodeSet, NodeSetParseError
from ClusterShell.RangeSet import RangeSet, RangeSetException

from slurm_hooks.model.moments import moment


@dataclass(frozen=True)
class Command:
    """A program with its arguments and standard input, and the number of RPCs that it makes.

    A command with `patience_s` is stopped after so many seconds and its answer is ignored. The next
    tick sees whether it worked.
    """

    argv: tuple[str, ...]
    stdin: str = ""
    rpcs: int = 1
    patience_s: float = 0.0


def parse_time(text: str) -> Optional[datetime]:
    """Read a time printed with SLURM_TIME_FORMAT=%s, or None if it is not set. Raises
    ValueError."""
    if text in ("", "N/A", "Unknown", "None", "NONE"):
        return None
    if not (text.isdecimal() and text.isascii() and len(text) <= 10):
        raise ValueError(f"not a time: {text!r}")
    return moment(int(text))


@lru_cache(maxsize=1024)
def parse_limit(text: str) -> Optional[timedelta]:
    """Read a time limit, [days-]hours:minutes:seconds, leading parts optional, or None if
    unlimited. Raises ValueError."""
    if text in ("", "UNLIMITED", "NOT_SET", "INVALID", "N/A", "Partition_Limit"):
        return None
    match = re.fullmatch(r"(?:(\d{1,7})-)?(?:(?:(\d{1,6}):)?(\d{1,6}):)?(\d{1,6})", text, re.ASCII)
    if not match:
        raise ValueError(f"not a time limit: {text!r}")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


_UNITS = {"": 0, "K": -10, "M": 0, "G": 10, "T": 20}


@lru_cache(maxsize=1024)
def parse_memory(text: str) -> int:
    """Return MiB, from `1000M`, `62.50G` or plain MiB. 0 if the text is not a size."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,3})?)([KMGT]?)[cn]?", text, re.ASCII)
    return int(float(match.group(1)) * 2.0 ** _UNITS[match.group(2)]) if match else 0


_GRES = re.compile(
    r"(?:gres[:/])?([A-Za-z]\w*)(?::([A-Za-z0-9][\w.+-]*))??(?:[:=](\d{1,9}))?", re.ASCII
)
_SLICE = re.compile(r"(?<!\d)[1-7]g[._-]?\d+gb", re.ASCII | re.IGNORECASE)


def is_slice(kind: str) -> bool:
    """Tell whether a type is a part of a GPU: `a100_1g.5gb`, `1c.2g.10gb` (NVIDIA's MIG)."""
    return bool(_SLICE.search(kind))


@lru_cache(maxsize=4096)
def parse_gres(text: str) -> tuple[tuple[str, int], ...]:
    """Return counts by name, sorted: `gpu:a100:4(S:0-1),tmp:1` gives gpu, gpu:a100 and tmp.

    A job's request is written `gres:gpu:2` (22.05) or `gres/gpu:2`. A missing count is 1.
    Unreadable items are skipped. For GPUs without a type slurmctld prints the type `(null)` once it
    knows their cores (22.05). A slice of a GPU counts by its type alone."""
    counts: dict[str, int] = {}
    for item in re.sub(r"\([^()]*\)", "", text.replace(":(null)", "")).split(","):
        match = _GRES.fullmatch(item.strip())
        if not match or text in ("N/A", "(null)"):
            continue
        name, kind, count = match.group(1), match.group(2), int(match.group(3) or 1)
        keys = (name, f"{name}:{kind}") if kind else (name,)
        for key in keys[1:] if name == "gpu" and is_slice(kind or "") else keys:
            counts[key] = counts.get(key, 0) + count
    return tuple(sorted(counts.items()))


_ONE_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_RANGES = r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*"
_LONG_NUMBER = re.compile(r"\d{100}", re.ASCII)  # ClusterShell ends at 1e100
_HOST_LIST = re.compile(rf"(?:[A-Za-z0-9_.,@-]|\[{_RANGES}\])+", re.ASCII)
_PARTS = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)|,")
MOST_NAMES = 1 << 17  # more than any Slurm has: a short list can name billions


def expand(names: str) -> frozenset[str]:
    """Return the node names of a Slurm host list, which may be empty. Raises NodeSetParseError.

    ClusterShell reads only single ranges here. In a whole list it would take the digits before a
    bracket for part of the range (n1[9-11] is n19, n110, n111). It would also read operators and
    groups.
    """
    if names in ("", "(null)", "N/A", "None"):
        return frozenset()
    if _LONG_NUMBER.search(names):
        raise NodeSetParseError(names[:80], "a number of 100 or more digits")
    if _ONE_NAME.fullmatch(names):
        return frozenset((names,))
    if not _HOST_LIST.fullmatch(names):
        raise NodeSetParseError(names[:80], "not a Slurm host list")
    if _length(names) > MOST_NAMES:
        raise NodeSetParseError(names[:80], f"more than {MOST_NAMES} names")
    try:
        return frozenset(_names(names))
    except (RangeSetException, AssertionError, ValueError) as error:  # on odd ranges
        raise NodeSetParseError(names[:80], str(error)) from error


def _names(names: str) -> Iterator[str]:
    """Yield each name of a host list: `n[1-2]x[5,7]` gives n1x5, n1x7, n2x5 and n2x7."""
    pieces: list[Sequence[str]] = []
    for part in _PARTS.finditer(f"{names},"):
        ranges, text = part.groups()
        if ranges:
            pieces.append(tuple(RangeSet(ranges).striter()))
        elif text:
            pieces.append((text,))
        elif pieces:
            yield from map("".join, product(*pieces))
            pieces = []


def _length(names: str) -> int:
    """Count the names of a host list, up to MOST_NAMES. Brackets in a name multiply."""
    total, size = 0, 1
    for part in _PARTS.finditer(names):
        if part.group() == ",":
            total, size = total + size, 1
        elif part.group(1):
            size *= sum(map(_span, part.group(1).split(",")))
        if total + size > MOST_NAMES:
            break
    return total + size


def _span(part: str) -> int:
    first, _, last = part.partition("-")
    return 1 + abs(int(last or first) - int(first))


def fold(names: Iterable[str]) -> str:
    """Return a Slurm host list for node names."""
    return str(NodeSet.fromlist(sorted(names)))


_Family = tuple[str, int]  # the text before the number, and the digits if the number begins with 0


class AllBut:
    """The names of a machine's nodes, ready to be listed without some of them. Length and cost of a
    list grow with the few nodes left out."""

    def __init__(self, names: Iterable[str]) -> None:
        self._runs = {family: _runs(numbers) for family, numbers in _by_family(names).items()}

    def listed(self, left_out: Collection[str]) -> str:
        """Return all names but these as a Slurm host list, empty if no name remains."""
        few = _by_family(left_out)
        lists = (
            _listed(family, _cut(runs, few.get(family, []))) for family, runs in self._runs.items()
        )
        return ",".join(filter(None, lists))


def _by_family(names: Iterable[str]) -> dict[_Family, list[int]]:
    """Return the sorted numbers of names that differ only in their numbers. -1: no number."""
    numbers: defaultdict[_Family, set[int]] = defaultdict(set)
    for name in names:
        digits = name[len(name.rstrip("0123456789")) :]
        width = len(digits) if digits.startswith("0") and digits != "0" else 0
        numbers[name[: len(name) - len(digits)], width].add(int(digits or -1))
    return {family: sorted(numbers[family]) for family in sorted(numbers)}


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the first and the last of each row of numbers without a gap. -1 is always alone."""
    ends = [n for n, after in zip(numbers, numbers[1:]) if after != n + 1 or n < 0]
    starts = [after for n, after in zip(numbers, numbers[1:]) if after != n + 1 or n < 0]
    return list(zip([*numbers[:1], *starts], [*ends, *numbers[-1:]]))


def _cut(runs: list[tuple[int, int]], few: list[int]) -> list[tuple[int, int]]:
    """Return the runs without a few numbers."""
    cut = []
    for first, last in runs:
        inside = few[bisect_left(few, first) : bisect_right(few, last)]
        starts, ends = [first, *(n + 1 for n in inside)], [*(n - 1 for n in inside), last]
        cut += [(start, end) for start, end in zip(starts, ends) if start <= end]
    return cut


def _listed(family: _Family, runs: list[tuple[int, int]]) -> str:
    head, width = family
    names = [head] if runs and runs[0][0] < 0 else []
    parts = [_span_text(first, last, width) for first, last in runs if first >= 0]
    if parts:
        is_one = len(parts) == 1 and "-" not in parts[0]
        names.append(f"{head}{parts[0]}" if is_one else f"{head}[{','.join(parts)}]")
    return ",".join(names)


def _span_text(first: int, last: int, width: int) -> str:
    start, end = f"{first:0{width}}", f"{last:0{width}}"
    return start if first == last else f"{start}-{end}"
