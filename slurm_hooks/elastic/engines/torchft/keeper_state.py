"""The state that the threads of a Keeper share, behind a lock. They are its own thread, the relay's
and the agent's.
"""

from __future__ import annotations

import threading
import time
from typing import Optional

from slurm_hooks.elastic.engines.torchft.lighthouse import Lighthouse

SEARCH_S = 60.0  # for so long after a loss it looks as often as possible


class KeeperState:
    """Any method may be called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._lost_term = 0
        self._lost_at: Optional[float] = None
        self._has_changed = self._is_leaving = self._is_stopped = False
        self._lighthouse: Optional[Lighthouse] = None

    def wait(self, pause_s: float) -> None:
        """Return after `pause_s`, or when there is news."""
        self._wake.wait(pause_s)
        self._wake.clear()

    def wake(self) -> None:
        """There is news."""
        self._wake.set()

    def lose(self, term: int) -> None:
        """The lighthouse of this term no longer answers."""
        with self._lock:
            if term > self._lost_term:
                self._lost_term, self._lost_at = term, time.monotonic()
        self._wake.set()

    def find(self) -> None:
        """An agent keeps the lighthouse."""
        with self._lock:
            self._lost_at = None

    @property
    def lost_term(self) -> int:
        """The last term that was lost, 0 before a loss."""
        with self._lock:
            return self._lost_term

    def search_s(self) -> float:
        """Return seconds since it was lost. Without a loss they count from the first call."""
        with self._lock:
            now = time.monotonic()
            self._lost_at = now if self._lost_at is None else self._lost_at
            return now - self._lost_at

    def is_urgent(self) -> bool:
        """Tell whether to look as often as possible."""
        with self._lock:
            is_lost = self._lost_at is not None and time.monotonic() - self._lost_at < SEARCH_S
            return is_lost or self._is_leaving

    def note_change(self, is_planned: bool) -> None:
        """Others joined or left."""
        with self._lock:
            self._has_changed = is_planned

    def take_planned_change(self) -> bool:
        """See Companion."""
        with self._lock:
            has_changed, self._has_changed = self._has_changed, False
            return has_changed

    def begin_leave(self) -> bool:
        """This group leaves. Tell whether this is the first call."""
        with self._lock:
            is_first, self._is_leaving = not self._is_leaving, True
            return is_first

    @property
    def is_leaving(self) -> bool:
        """True if this group has begun to leave."""
        with self._lock:
            return self._is_leaving

    def stop(self) -> None:
        """This agent ends."""
        with self._lock:
            self._is_stopped = True
        self._wake.set()

    @property
    def is_stopped(self) -> bool:
        """True if this agent ends."""
        with self._lock:
            return self._is_stopped

    def serve(self, lighthouse: Optional[Lighthouse]) -> None:
        """Keep this lighthouse from now on, and close the last. With `None` keep no lighthouse."""
        with self._lock:
            before, self._lighthouse = self._lighthouse, lighthouse
        if before is not None:
            before.close()
