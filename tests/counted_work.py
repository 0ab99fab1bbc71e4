"""Counts the work of Python code, so that a test of speed needs no clock and no quiet host."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Callable


@contextmanager
def counting() -> Iterator[list[int]]:
    """Count the calls of Python functions in the only item of the list."""
    calls = [0]

    def count(frame: FrameType, event: str, arg: object) -> None:
        calls[0] += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def lines_of(work: Callable[[], object]) -> int:
    """The lines of Python that the work runs. A line runs again for each item of its loop."""
    lines = [0]

    def count(frame: FrameType, event: str, arg: Any) -> Any:
        lines[0] += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines[0]
