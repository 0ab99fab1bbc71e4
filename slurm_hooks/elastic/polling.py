"""Wait for any of several descriptors by poll(), since select() takes numbers up to 1,023 only."""

from __future__ import annotations

import math
import select
import time
from collections.abc import Iterable, Iterator


def readable(filenos: Iterable[int], timeout_s: float) -> frozenset[int]:
    """Return the descriptors that have data or have ended, after at most `timeout_s`."""
    poller = _poller(filenos, select.POLLIN)
    return frozenset(fileno for fileno, _ in poller.poll(math.ceil(1000 * timeout_s)))


def as_ready(filenos: Iterable[int], timeout_s: float, events: int) -> Iterator[int]:
    """Yield each descriptor once, when an event is there or it has ended. Stop after
    `timeout_s`.
    """
    left = set(filenos)
    poller = _poller(left, events)
    deadline = time.monotonic() + timeout_s
    while left and (rest_s := deadline - time.monotonic()) > 0:
        for fileno, _ in poller.poll(math.ceil(1000 * rest_s)):
            poller.unregister(fileno)
            left.discard(fileno)
            yield fileno


def _poller(filenos: Iterable[int], events: int) -> select.poll:
    poller = select.poll()
    for fileno in filenos:
        if fileno >= 0:  # else it was closed before
            poller.register(fileno, events)
    return poller
