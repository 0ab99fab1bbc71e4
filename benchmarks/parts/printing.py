"""Options, timing and printing that all benchmarks share.

A benchmark prints its tables, then a JSON object as its last line. It ends with 1 if it missed its
goal.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, TypeVar

from rich.console import Console
from rich.table import Table

T = TypeVar("T")
Row = Mapping[str, Any]
WIDEST = 8  # columns of a table; a row with more keys becomes a column
SAY = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else 120)


class _Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Prints the docstring as it stands, and each option's default."""


def arguments(text: Optional[str]) -> argparse.ArgumentParser:
    """Return a parser whose help begins with the benchmark's docstring."""
    return argparse.ArgumentParser(description=text, formatter_class=_Help)


def show(title: str, rows: Sequence[Row]) -> None:
    """Print a table with a line for each row, or with a column for each if a few rows are wide."""
    names = list(rows[0]) if rows else []
    if len(names) > WIDEST and len(rows) <= WIDEST:
        table = Table("", *("" for _ in rows), title=title)
        for name in names:
            table.add_row(name, *(_cell(row.get(name)) for row in rows))
    else:
        table = Table(*names, title=title)
        for row in rows:
            table.add_row(*(_cell(row.get(name)) for name in names))
    SAY.print(table)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def tell(benchmark: str, is_met: bool = True, **figures: Any) -> int:
    """Print the last line. Return the exit code."""
    print(json.dumps({"benchmark": benchmark, "is_met": is_met, **figures}), flush=True)
    return 0 if is_met else 1


def timed(body: Callable[[], T], clock: Callable[[], float] = time.perf_counter) -> tuple[T, float]:
    """Return the body's result, and its seconds on this clock."""
    began = clock()
    result = body()
    return result, clock() - began


def seconds_of(body: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the seconds of the body on this clock."""
    return timed(body, clock)[1]


def in_turns(
    one: Callable[[], float], other: Callable[[], float], pairs: int
) -> list[tuple[float, float]]:
    """Return the results of both, in turns. Each is first in half of the pairs."""
    return [(one(), other()) if n % 2 else (other(), one())[::-1] for n in range(pairs)]


def middle(values: Iterable[float], digits: int = 3) -> Optional[float]:
    """Return the median, rounded. None stands for no values."""
    numbers = list(values)
    return round(statistics.median(numbers), digits) if numbers else None


def alone(body: Callable[..., T], *words: object) -> T:
    """Return the body's result from a new process, so that its memory is separate."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(body, words)


def peak_mib() -> float:
    """Return the most memory that this process has had.

    Linux passes a parent's peak in getrusage on to a new program. /proc counts this program alone.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
