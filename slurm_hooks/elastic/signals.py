"""The two signals that an agent acts on: SIGURG, a notice that this fragment will be taken back,
and SIGTERM, which ends it.

A process without a handler ignores SIGURG, so the whole job may get it. torchrun sets its own
SIGTERM handler each time it starts workers. We put our handler in front of it again, which informs
the other agents and passes the signal on. torchrun's handler raises an exception, which ends the
agent. The log then has a single line instead of a stack trace.
"""

from __future__ import annotations

import atexit
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
    """Flags set by signals, and a pipe that wakes the thread that waits for SIGTERM."""

    def __init__(self) -> None:
        self.has_notice = False
        self.is_terminated = False
        self.has_ended = False  # SIGTERM has ended the work of this process
        self.terminated_at = 0.0  # by the monotonic clock
        self._is_silenced = False
        self._next_handler: object = signal.SIG_DFL
        self.wake_read, self._wake_write = os.pipe()
        self._ended_read, self._ended_write = os.pipe()
        for end in (self.wake_read, self._wake_write, self._ended_write):
            os.set_blocking(end, False)

    def listen_early(self) -> None:
        """Handle SIGURG from now on. SIGTERM may still have its default effect."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGURG) != self._on_notice:
            signal.signal(signal.SIGURG, self._on_notice)

    def listen(self) -> None:
        """Handle both from now on. Costs little if the handlers are in place. Has no effect outside
        of the main thread.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        self.listen_early()
        current = signal.getsignal(signal.SIGTERM)
        if current != self._on_term:
            self._next_handler = current
            signal.signal(signal.SIGTERM, self._on_term)

    def silence(self) -> None:
        """Let SIGTERM only set its flag from now on: this agent is about to end."""
        self._is_silenced = True
        self.listen()

    def wake(self) -> None:
        """Wake the waiting thread. Safe within a signal handler."""
        with suppress(OSError):  # full: it is awake already
            os.write(self._wake_write, b"x")

    def wait_end(self, timeout_s: float) -> None:
        """Sleep until SIGTERM comes, at most `timeout_s`."""
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
            signals.has_ended = True
            report()
        else:
            before(kind, error, trace)

    sys.excepthook = hook


def skip_teardown(signals: SignalListener) -> None:
    """Make an agent that SIGTERM has ended exit without the interpreter's teardown.

    To free everything that torch has loaded takes half a second of processor time, for which the
    next job would wait. Call this before any other exit hook is registered: the hook that is
    registered first runs last.
    """
    atexit.register(_end_at_once, signals)


def _end_at_once(signals: SignalListener) -> None:
    if signals.has_ended:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(1)
