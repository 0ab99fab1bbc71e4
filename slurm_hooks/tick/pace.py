"""How a loop pauses between two ticks: planning/interval.py says for how long, a file that somebody
touches ends a pause early.
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
LOOK_S = 0.25  # how often the file is looked at
SOONEST_S = 1.0  # from one tick to another that is called for
MOST_CALLED_FOR = 0.1  # of the time, taken by ticks that are called for


def soonest_s(tick_s: float) -> float:
    """Seconds from the end of a tick that took `tick_s` to one that is called for."""
    return max(SOONEST_S, tick_s / MOST_CALLED_FOR)


def until_next_s(pause: float, ran_s: float, end_after: float, every_s: float) -> float:
    """Seconds from the start of a tick to the next, if its loop has run for `ran_s` and starts none
    later than `end_after`: then that is the first one of the loop which follows, `every_s` after
    this loop began."""
    return pause if ran_s + pause <= end_after else max(pause, every_s - ran_s)


def ask_threads(port: Port) -> Optional[int]:
    """The requests that slurmctld answers now; None if it does not say. Does not raise."""
    try:
        return parse_threads(port.ask(diagnosis_command()))
    except MalleableError as error:
        _log.debug("how busy slurmctld is cannot be told: %s", error)
        return None


class Bell:
    """A file whose touch calls for a tick; without a path nobody ever does.

    Only its date is looked at, and a link is not followed, so whoever may write it can make
    ticks come sooner and nothing else.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._seen = self._date()

    @property
    def is_hung(self) -> bool:
        """Whether there is a file to look at."""
        return bool(self._path)

    def listen_at(self, path: str) -> None:
        """Look at this file from now on."""
        if path != self._path:
            self._path = path
            self._seen = self._date()

    def has_rung(self) -> bool:
        """Whether it was touched since this was asked last."""
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

    `sleep` returns True when the loop is to end, and so does this.
    """
    look_s = LOOK_S if bell.is_hung else seconds
    pause, left = min(max(soonest, look_s), seconds), seconds
    while not sleep(pause):
        left -= pause
        if left <= 0 or bell.has_rung():
            return False
        pause = min(look_s, left)
    return True
