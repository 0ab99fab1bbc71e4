"""The two signals an agent must hear: SIGURG, a polite notice that this fragment will be
taken back, and SIGTERM, its abrupt form.

SIGURG is ignored by whatever does not ask for it, so the whole job may get it. torchrun
sets its own SIGTERM handler each time it starts workers; ours is put in front of it again,
to tell the others, and hands the signal on. torchrun's raises an exception, which ends the
agent; that is told in one line instead of a stack trace.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Optional


class SignalListener:
    """Flags set by signals, and a pipe that wakes whoever waits for the abrupt one."""

    def __init__(self) -> None:
        self.has_notice = False
        self.is_terminated = False
        self._is_hushed = False
        self._behind: object = signal.SIG_DFL
        self.wake_read, self._wake_write = os.pipe()
        self._ended_read, self._ended_write = os.pipe()
        for end in (self.wake_read, self._wake_write, self._ended_write):
            os.set_blocking(end, False)

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

    def silence(self) -> None:
        """From now on SIGTERM is noted and does nothing else: whoever says so is about to end."""
        self._is_hushed = True
        self.listen()

    def wake(self) -> None:
        """Make the waiting thread look up at once; safe within a signal handler."""
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
        self.wake()
        with suppress(OSError):
            os.write(self._ended_write, b"x")
        if self._is_hushed or not is_first:
            return  # Slurm may say it twice, and the first one's end must not be cut short
        if callable(self._behind):
            self._behind(signum, frame)
        elif self._behind is not signal.SIG_IGN:
            raise SystemExit(128 + signum)


Hook = Callable[[type[BaseException], BaseException, Optional[TracebackType]], Any]


def end_quietly(signals: SignalListener, told: Callable[[], None]) -> None:
    """Have an agent that SIGTERM ends call `told` instead of printing where it was."""
    before: Hook = sys.excepthook

    def hook(
        kind: type[BaseException], error: BaseException, trace: Optional[TracebackType]
    ) -> None:
        if signals.is_terminated and kind.__name__ == "SignalException":
            told()
        else:
            before(kind, error, trace)

    sys.excepthook = hook
