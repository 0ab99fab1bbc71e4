"""SIGTERM in a training process that has something to write down before it ends.

The main thread may hang in a collective whose peer is dead, where no handler of Python's runs.
So a thread hears the signal, through the pipe into which the interpreter's own handler, in C,
writes its number. The first SIGTERM lets the process write and then end. A second one says that
somebody waits for this node (Slurm's comes first, then torchrun's): the end is near, written or
not. To end is what it would have been without us: the script's own handler if it has one, else the
default action. A handler that returns or raises has STAY_S for what it began: all is written, so
nobody waits half a minute for a process that goes on with work that will be done again.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from slurm_hooks.elastic.log import debug

STAY_S = 5.0  # a handler may only note that the end has come, for the next step to see
_NO_SIGNAL = 0  # written to the pipe at the end
Hook = Callable[[Any, Any, Any], Any]


class LastSignal:
    """`before_end` is called between the first SIGTERM and the end, in a thread of its own, and
    when an exception or an exit code ends the main thread; `before_exit` whenever the
    interpreter exits; `let_go` before anything of the script's own runs again. None of them may
    raise. `farewell_s`: the longest time between the first SIGTERM and the end, once a second
    has come."""

    def __init__(
        self,
        before_end: Callable[[], None],
        before_exit: Callable[[], None],
        let_go: Callable[[], None],
        farewell_s: float = 0.0,
    ) -> None:
        self._farewell_s = farewell_s
        self._before_end, self._before_exit, self._let_go = before_end, before_exit, let_go
        self._handlers: list[Any] = [signal.SIG_DFL]  # that would be in our place, newest last
        self._depth = 0  # how many of them run, each called by a newer one
        self._next_pipe = -1
        self._next_hook: Hook = sys.excepthook
        self._next_exit: Callable[[Any], Any] = sys.exit
        self._read, self._write, self._inode = -1, -1, -1
        self._heard_at: list[float] = []
        self._is_passed_on = False
        self._has_returned = threading.Event()  # the script's own handler, without ending anything
        self._owner = 0
        self._is_over = False

    def listen(self) -> None:
        """From now on, and again after the script has set a handler of its own; cheap where
        nothing has changed. Only in the main thread."""
        found = signal.getsignal(signal.SIGTERM)
        if (found == self._on_term and self._is_whole()) or not self._is_ready():
            return
        if found != self._on_term:
            self._handlers = [*(one for one in self._handlers if one != found), found]
        # The pipe first: what came between would be in none, and a handler of the script's that is
        # called twice is better than a signal that is lost.
        before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        if before != self._write:
            self._next_pipe = before
        signal.signal(signal.SIGTERM, self._on_term)

    def _is_ready(self) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return False
        if self._owner == 0:
            self._owner = os.getpid()
            self._open_pipe()
            self._next_hook, sys.excepthook = sys.excepthook, self._on_exception
            self._next_exit = sys.exit
            sys.exit = self._on_sys_exit  # type: ignore[assignment]
            atexit.register(self._on_exit)
            self._spare_children()
        if self._owner == os.getpid() and not self._is_whole():
            signal.set_wakeup_fd(-1)  # it may be a file of the script by now
            self._open_pipe()
        return self._owner == os.getpid()

    def _open_pipe(self) -> None:
        self._read, self._write = os.pipe()
        self._inode = os.fstat(self._read).st_ino
        os.set_blocking(self._write, False)
        threading.Thread(target=self._hear, name="malleable-last-signal", daemon=True).start()

    def _is_whole(self) -> bool:
        """Whether the script has not closed the pipe, with all descriptors that it does not know:
        then their numbers may be those of its own files."""
        with suppress(OSError):
            return all(os.fstat(end).st_ino == self._inode for end in (self._read, self._write))
        return False

    def _spare_children(self) -> None:
        """What ends a forked child must not reach the pipe that it inherits: SIGTERM waits there
        until this process's handler is gone."""
        masks = threading.local()

        def hold() -> None:
            masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

        def restore() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

        weakly = weakref.WeakMethod(self.forget)  # what is registered here stays for good

        def forget() -> None:
            forget_it = weakly()
            if forget_it is not None:
                forget_it()
            restore()

        os.register_at_fork(before=hold, after_in_parent=restore, after_in_child=forget)

    def _hear(self) -> None:
        read, write = self._read, self._write
        while self._is_whole() and (read, write) == (self._read, self._write):
            for number in os.read(read, 64):
                if number == _NO_SIGNAL:  # nobody writes here any more
                    os.close(read)
                    os.close(write)
                    return
                if self._next_pipe >= 0:
                    with suppress(OSError):
                        os.write(self._next_pipe, bytes([number]))
                if number == signal.SIGTERM:
                    self._hear_term()

    def _hear_term(self) -> None:
        self._heard_at.append(time.monotonic())
        if len(self._heard_at) == 1:
            threading.Thread(target=self._write_and_end, daemon=True).start()
        elif len(self._heard_at) == 2:
            left_s = self._heard_at[0] + self._farewell_s - time.monotonic()
            threading.Timer(max(0.0, left_s), self._end).start()

    def _write_and_end(self) -> None:
        self._before_end()
        self._end()

    def _end(self) -> None:
        if self._is_passed_on:
            return
        found = signal.getsignal(signal.SIGTERM)
        if found != self._on_term and callable(found):  # set since: the signal itself has called it
            self._let_go()
        elif callable(self._handlers[-1]):
            self._is_passed_on = True
            self._let_go()
            os.kill(os.getpid(), signal.SIGTERM)  # the main thread calls it
            self._has_returned.wait()
            time.sleep(STAY_S)
            self._before_end()
            end_by_default()
        else:  # ignored: an agent kills who ignores it
            end_by_default()

    def _on_term(self, signum: int, frame: FrameType | None) -> None:
        if self._is_passed_on or self._is_over:
            try:
                self._pass_on(signum, frame)
            finally:  # what it raises may be caught, and the training go on
                self._has_returned.set()
            return
        before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        if before != self._write:  # somebody else's since, so this thread hears it first
            self._next_pipe = before
            self._hear_term()

    def _pass_on(self, signum: int, frame: FrameType | None) -> None:
        """Call the script's own handler. One that was set after us may call us in turn, as what
        was there before; then it is the turn of what was there before us."""
        self._depth += 1
        try:
            handler = self._handlers[-self._depth] if self._depth <= len(self._handlers) else None
            if callable(handler):
                handler(signum, frame)
        finally:
            self._depth -= 1

    def _on_exception(self, kind: Any, error: Any, trace: Any) -> None:
        self._next_hook(kind, error, trace)
        if os.getpid() == self._owner:
            self._before_end()

    def _on_sys_exit(self, code: Any = None, /) -> None:
        """The script may have caught the error itself, and have left the process group: no hook is
        called then. Only an exit code other than 0 says that it has failed."""
        is_success = code is None or (isinstance(code, int) and code == 0)
        is_main = threading.current_thread() is threading.main_thread()
        is_new = not self._heard_at and os.getpid() == self._owner
        if is_main and is_new and not is_success:
            self._before_end()
            self._let_go()  # it may catch that as well, and go on
        self._next_exit(code)

    def _on_exit(self) -> None:
        if os.getpid() != self._owner:
            return
        self._before_exit()
        self.forget()

    def end(self) -> None:
        """Signals are none of our business any more, and nothing is held on to: not what the three
        functions know, no pipe and no thread. Changes nothing once SIGTERM has come."""
        is_in_place = signal.getsignal(signal.SIGTERM) == self._on_term
        self.forget()
        if self._owner != os.getpid() or self._is_over or self._heard_at:
            return
        self._is_over = True
        if is_in_place:
            self._handlers.pop()  # it is back, and may call us as what was there before it
        self._before_end = self._before_exit = self._let_go = _do_nothing
        atexit.unregister(self._on_exit)
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._next_hook
        if sys.exit == self._on_sys_exit:
            sys.exit = self._next_exit  # type: ignore[assignment]
        self._leave_pipe()

    def _leave_pipe(self) -> None:
        """The thread closes it; only in the main thread can nothing be under way to it."""
        with suppress(ValueError):
            writes_to = signal.set_wakeup_fd(-1)
            left = self._next_pipe if writes_to == self._write else writes_to
            signal.set_wakeup_fd(left, warn_on_full_buffer=False)
            os.write(self._write, bytes([_NO_SIGNAL]))

    def forget(self) -> None:
        """In a child of fork(), and at the end: signals are none of our business any more."""
        with suppress(ValueError):  # not in the main thread
            if signal.getsignal(signal.SIGTERM) == self._on_term:
                signal.signal(signal.SIGTERM, self._handlers[-1] or signal.SIG_DFL)
                signal.set_wakeup_fd(self._next_pipe)


def _do_nothing() -> None:
    pass


def end_by_default() -> None:
    """End this process as SIGTERM does where nobody handles it; from any thread, also while the
    main thread hangs."""
    try:
        libc: Any = ctypes.CDLL(None)
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal(int(signal.SIGTERM), None)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.0)
    except (OSError, AttributeError) as error:
        debug("ending this process by SIGTERM", error)
    os._exit(128 + signal.SIGTERM)
