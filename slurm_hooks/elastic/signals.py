"""The two signals that an agent acts on: SIGURG, a notice that this fragment will be taken
back, and SIGTERM, which ends it.

SIGURG is ignored by every process without a handler for it, so the whole job may get it.
torchrun sets its own SIGTERM handler each time it starts workers; ours is put in front of it
again, so that the other agents are informed, and passes the signal on. torchrun's raises an
exception, which ends the agent; the log then has one line instead of a stack trace.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Optional


class SignalListener:
    """Flags set by signals, and a pipe that wakes whoever waits for SIGTERM."""

    def __init__(self) -> None:
        self.has_notice = False
        self.is_terminated = False
        self.terminated_at = 0.0  # by the monotonic clock
        self.on_terminated: Callable[[], None] = lambda: None  # at the first SIGTERM
        self._is_silenced = False
        self._next_handler: object = signal.SIG_DFL
        self.wake_read, self._wake_write = os.pipe()
        self._ended_read, self._ended_write = os.pipe()
        for end in (self.wake_read, self._wake_write, self._ended_write):
            os.set_blocking(end, False)

    def listen_early(self) -> None:
        """Handle SIGURG from now on; SIGTERM may still do what it always does."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGURG) != self._on_notice:
            signal.signal(signal.SIGURG, self._on_notice)

    def listen(self) -> None:
        """Handle both, from now on. Costs nothing if the handlers are in place; does
        nothing outside of the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        self.listen_early()
        current = signal.getsignal(signal.SIGTERM)
        if current != self._on_term:
            self._next_handler = current
            signal.signal(signal.SIGTERM, self._on_term)

    def silence(self) -> None:
        """From now on SIGTERM sets its flag and does nothing else: this agent is about to end."""
        self._is_silenced = True
        self.listen()

    def wake(self) -> None:
        """Wake the waiting thread; safe within a signal handler."""
        with suppress(OSError):  # full: it is awake already
            os.write(self._wake_write, b"x")

    def wait_end(self, timeout_s: float) -> None:
        """Sleep until SIGTERM has come, so long at most."""
        poller = select.poll()
        poller.register(self._ended_read, select.POLLIN)
        poller.poll(timeout_s * 1000)

    def _on_notice(self, signum: int, frame: FrameType | None) -> None:
        self.has_notice = True

    def _on_term(self, signum: int, frame: FrameType | None) -> None:
        is_first, self.is_terminated = not self.is_terminated, True
        self.terminated_at = self.terminated_at or time.monotonic()
        self.wake()
        with suppress(OSError):
            os.write(self._ended_write, b"x")
        if is_first:
            self.on_terminated()
        if self._is_silenced or not is_first:
            return  # Slurm may send it twice, and the first must be handled to its end
        if callable(self._next_handler):
            self._next_handler(signum, frame)
        elif self._next_handler is not signal.SIG_IGN:
            raise SystemExit(128 + signum)


Hook = Callable[[type[BaseException], BaseException, Optional[TracebackType]], Any]


def end_quietly(signals: SignalListener, report: Callable[[], None]) -> None:
    """Have an agent that SIGTERM ends call `report` instead of printing a stack trace."""
    before: Hook = sys.excepthook

    def hook(
        kind: type[BaseException], error: BaseException, trace: Optional[TracebackType]
    ) -> None:
        if signals.is_terminated and kind.__name__ == "SignalException":
            report()
        else:
            before(kind, error, trace)

    sys.excepthook = hook
