"""Waiting for a condition, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Thirty times the length of most waits: a busy host makes a test late, and not wrong. Pass a limit
# only if the event must not take longer.
PATIENCE_S = 150.0


def wait_until(
    look: Callable[[], T],
    limit_s: float = PATIENCE_S,
    explain: Callable[[], object] = lambda: "",
    every_s: float = 0.05,
) -> T:
    """The first true value that `look` returns.

    Fail after `limit_s` seconds, with the answer of `explain` at that time.
    """
    deadline = time.monotonic() + limit_s
    while not (value := look()):
        assert time.monotonic() < deadline, f"not so after {limit_s:g} s: {explain()}"
        time.sleep(every_s)
    return value


def until_or_last(look: Callable[[], T], is_good: Callable[[T], bool], limit_s: float) -> T:
    """The first good value that `look` returns, or the last value after `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while not is_good(value := look()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return value
