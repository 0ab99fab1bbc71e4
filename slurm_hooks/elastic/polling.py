"""Waiting for any of several descriptors."""

from __future__ import annotations

import math
import select
from collections.abc import Iterable


def readable(filenos: Iterable[int], timeout_s: float) -> frozenset[int]:
    """Which of them have something to read or have ended, after at most so long. By poll():
    select() knows no descriptors above 1,023."""
    poller = select.poll()
    for fileno in filenos:
        if fileno >= 0:  # else closed meanwhile
            poller.register(fileno, select.POLLIN)
    return frozenset(fileno for fileno, _ in poller.poll(math.ceil(1000 * timeout_s)))
