"""Read logs by lines: plain or compressed. Each bad line is reported by file and number.

A reader of a format turns a line into a value or raises `BadLine`. This module then ends the
reading, or counts the line and continues.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, TextIO, TypeVar

from slurm_hooks.errors import Exit, MalleableError, UsageError

T = TypeVar("T")
MOST_TOLD = 20


class BadLine(ValueError):
    """A line without a usable value. The message has the reason."""


class BadLog(MalleableError):
    """A log has an unusable line, so the replay was not run."""

    exit_code = Exit.BAD_DATA


class Log:
    """A log file. With `skip_bad` it skips bad lines, and `skipped` counts them."""

    def __init__(
        self, path: Path, skip_bad: bool = False, tell: Callable[[str], None] = lambda line: None
    ) -> None:
        self.path = path
        self.skipped = 0
        self._skip_bad = skip_bad
        self._tell = tell

    def lines(self) -> Iterator[tuple[int, str]]:
        """Number and text of every line that is not empty. Raises UsageError, BadLog."""
        try:
            with _opened(self.path) as stream:
                for number, line in enumerate(stream, start=1):
                    text = line.rstrip("\r\n")
                    if text.strip():
                        yield number, text
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise BadLog(f"{self.path}: damaged: {error}") from error
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror or error}") from error

    def parsed(self, number: int, text: str, parse: Callable[[str], T]) -> list[T]:
        """The value of a line, in a list. The list is empty for a bad line that is skipped."""
        try:
            return [parse(text)]
        except BadLine as error:
            self.bad(number, str(error))
            return []

    def bad(self, number: int, why: str) -> None:
        """Report line `number`. Raises BadLog unless bad lines are skipped."""
        message = f"{self.path}, line {number}: {why}"
        if not self._skip_bad:
            raise BadLog(f"{message} (--skip-bad leaves such lines out and counts them)")
        self.skipped += 1
        if self.skipped <= MOST_TOLD:
            self._tell(f"{message}; left out")
        elif self.skipped == MOST_TOLD + 1:
            self._tell(f"{self.path}: more bad lines are only counted")


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """The text of the file, without a byte order mark. Bytes that are not UTF-8 become replacement
    characters."""
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8-sig", errors="replace") as stream:
            yield stream
    else:
        with path.open(encoding="utf-8-sig", errors="replace") as stream:
            yield stream


def seconds(text: str, what: str) -> float:
    """A finite number. Raises BadLine."""
    try:
        value = float(text)
    except ValueError:
        raise BadLine(f"{what} {text!r} is not a number") from None
    if not math.isfinite(value):
        raise BadLine(f"{what} {text!r} is not a finite number")
    return value


def whole(text: str, what: str) -> int:
    """A whole number, also written as 3.0. Raises BadLine."""
    value = seconds(text, what)
    if value != int(value):
        raise BadLine(f"{what} {text!r} is not a whole number")
    return int(value)
