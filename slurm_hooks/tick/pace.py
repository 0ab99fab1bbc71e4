"""Waits between two ticks of a loop.

planning/interval.py says for how long. Touching a file ends the wait early.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Optional

from slurm_hooks.errors import MalleableError
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.sdiag import diagnosis_command, parse_threads

_log = logging.getLogger(__name__)
LOOK_S = 0.25  # the interval at which the file is checked
SOONEST_S = 1.0  # from a tick to a called tick
MOST_CALLED_FOR = 0.1  # the share of time that called ticks take


def soonest_s(tick_s: float) -> float:
    """Seconds from the end of a tick that took `tick_s` to a called tick."""
    return max(SOONEST_S, tick_s / MOST_CALLED_FOR)


def until_next_s(gap: float, ran_s: float, end_after: float, every_s: float) -> float:
    """Seconds from the start of a tick to the next, if its loop has run for `ran_s`.

    A loop starts no tick after `end_after`. Then the next tick is the first of the following loop,
    `every_s` after this loop began.
    """
    return gap if ran_s + gap <= end_after else max(gap, every_s - ran_s)


def ask_threads(port: Port) -> Optional[int]:
    """The requests that slurmctld answers now. None if it does not say. Does not raise."""
    try:
        return parse_threads(port.ask(diagnosis_command()))
    except MalleableError as error:
        _log.debug("cannot ask how busy slurmctld is: %s", error)
        return None


class Bell:
    """A file whose touch calls for a tick. Without a path there are no calls.

    Only its date is read, and no link is followed. So a user who may write it can make ticks come
    sooner, and can do no more.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._seen = self._date()

    @property
    def is_hung(self) -> bool:
        """Whether there is a file to watch."""
        return bool(self._path)

    def listen_at(self, path: str) -> None:
        """Watch this file from now on."""
        if path != self._path:
            self._path = path
            self._seen = self._date()

    def has_rung(self) -> bool:
        """Tell whether it was touched since the last call."""
        before, self._seen = self._seen, self._date()
        return self._seen != before

    def _date(self) -> int:
        try:
            return os.lstat(self._path).st_mtime_ns if self._path else 0
        except OSError:
            return 0


def wait(
    seconds: float, soonest: float, bell: Bell, sleep: Callable[[float], Optional[bool]]
) -> bool:
    """Sleep so many seconds, or until the bell has rung, but at least `soonest` of them.

    If `sleep` returns True, the loop is to end, and this returns True too.
    """
    look_s = LOOK_S if bell.is_hung else seconds
    gap, left = min(max(soonest, look_s), seconds), seconds
    while not sleep(gap):
        left -= gap
        if left <= 0 or bell.has_rung():
            return False
        gap = min(look_s, left)
    return True
