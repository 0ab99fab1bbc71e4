"""The two signals an agent must hear: SIGURG, a polite notice that this fragment will be
taken back, and SIGTERM, its abrupt form.

SIGURG is ignored by whatever does not ask for it, so the whole job may get it. torchrun
sets its own SIGTERM handler each time it starts workers; ours is put in front of it again,
only to tell the others, and hands the signal on.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType


class Notice:
    """Flags set by signals, and a pipe that wakes whoever waits for the abrupt one."""

    def __init__(self) -> None:
        self.is_given = False
        self.is_terminated = False
        self._behind: object = signal.SIG_DFL
        self.wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self.wake_read, False)

    def listen_early(self) -> None:
        """Hear the polite notice; SIGTERM may still do what it always does."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGURG) != self._on_notice:
            signal.signal(signal.SIGURG, self._on_notice)

    def listen(self) -> None:
        """Hear both, from now on. Costs nothing if the handlers are in place; does
        nothing outside of the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        self.listen_early()
        current = signal.getsignal(signal.SIGTERM)
        if current != self._on_term:
            self._behind = current
            signal.signal(signal.SIGTERM, self._on_term)

    def wake(self) -> None:
        """Make the waiting thread look up at once; safe within a signal handler."""
        with suppress(OSError):  # full: it is awake already
            os.write(self._wake_write, b"x")

    def _on_notice(self, signum: int, frame: FrameType | None) -> None:
        self.is_given = True

    def _on_term(self, signum: int, frame: FrameType | None) -> None:
        self.is_terminated = True
        self.wake()
        if callable(self._behind):
            self._behind(signum, frame)
        elif self._behind is not signal.SIG_IGN:
            raise SystemExit(128 + signum)
