"""SIGTERM in a training process that has a state to save before it ends.

The main thread may hang in a collective whose peer is dead, where Python runs no handler. So a
thread hears the signal, through the pipe into which the interpreter's own handler, in C, writes its
number.

The first SIGTERM lets the process save and then end. A second SIGTERM says that another job waits
for this node (Slurm's comes first, then torchrun's). Then the end comes soon, saved or not. The
process then ends as it would without this module: by the script's own handler, or by the default
action. A handler that returns or raises has STAY_S to finish. All is saved by then, so there is no
half-minute wait for a process whose further work will be done again.

SIGTERM usually goes to a group of processes, so it ends the workers of a DataLoader too. torch then
raises an error at any place of the main thread, also within optimizer.step(). The step would never
be whole again. So this error does not count if SIGTERM has come, or comes at once.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from slurm_hooks.elastic.log import debug, say

STAY_S = 5.0  # a handler may only set a flag for the next step to see
GROUP_S = 1.0  # all processes of a group get SIGTERM within this time, workers perhaps first
_LOADER, _OF_WORKERS = "torch.utils.data.dataloader", "torch.utils.data._utils.signal_handling"
_NO_SIGNAL = 0  # written to the pipe at the end
Hook = Callable[[Any, Any, Any], Any]


class LastSignal:
    """Calls three functions around the end of a process. They must not raise.

    * `before_end`: between the first SIGTERM and the end, in its own thread, and when an exception
      or an exit code ends the main thread.
    * `before_exit`: whenever the interpreter exits.
    * `let_go`: before any of the script's own code runs again.

    `farewell_s` is the longest time between the first SIGTERM and the end, after a second SIGTERM.
    """

    def __init__(
        self,
        before_end: Callable[[], None],
        before_exit: Callable[[], None],
        let_go: Callable[[], None],
        farewell_s: float = 0.0,
    ) -> None:
        self._farewell_s = farewell_s
        self._before_end, self._before_exit, self._let_go = before_end, before_exit, let_go
        self._handlers: list[Any] = [signal.SIG_DFL]  # the handlers that ours replaced, newest last
        self._depth = 0  # how many of them run, each called by a newer handler
        self._next_pipe = -1
        self._next_child: Any = None  # the handler of SIGCHLD that ours replaced
        self._next_hook: Hook = sys.excepthook
        self._next_exit: Callable[[Any], Any] = sys.exit
        self._read, self._write, self._inode = -1, -1, -1
        self._heard_at: list[float] = []
        self._is_passed_on = False
        self._has_returned = threading.Event()  # the script's own handler, without an end
        self._owner = 0
        self._has_failed = False  # an exception has ended the main thread
        self._is_over = False

    def listen(self) -> None:
        """Listen from now on, and again after the script has set its own handler. Cheap without a
        change. Only in the main thread.
        """
        handler = signal.getsignal(signal.SIGTERM)
        if handler == self._on_term and self._is_whole():
            self._cover_child_handler()
            return
        if not self._is_ready():
            return
        if handler != self._on_term:
            self._handlers = [*(each for each in self._handlers if each != handler), handler]
        # The pipe first: a signal between the two calls would be lost otherwise. To call a handler
        # of the script's twice is better than to lose a signal.
        before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        if before != self._write:
            self._next_pipe = before
        signal.signal(signal.SIGTERM, self._on_term)

    def _cover_child_handler(self) -> None:
        """Cover torch's handler of SIGCHLD, which the first iteration of a DataLoader sets."""
        handler = signal.getsignal(signal.SIGCHLD)
        if getattr(handler, "__module__", "") == _OF_WORKERS and self._owner == os.getpid():
            self._next_child = handler
            signal.signal(signal.SIGCHLD, self._on_child)

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
        """Tell whether the pipe is still ours. A script may close all descriptors that it does not
        know, and their numbers may then be its own files.
        """
        with suppress(OSError):
            return all(os.fstat(end).st_ino == self._inode for end in (self._read, self._write))
        return False

    def _spare_children(self) -> None:
        """Keep signals to a forked child out of the pipe that it inherits: SIGTERM waits there
        until this process's handler is gone.
        """
        masks = threading.local()

        def hold() -> None:
            masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

        def restore() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

        weakly = weakref.WeakMethod(self.forget)  # functions registered here stay for good

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
                if number == _NO_SIGNAL:  # the last byte of the pipe
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
        handler = signal.getsignal(signal.SIGTERM)
        if handler != self._on_term and callable(handler):  # set since; the signal has called it
            self._let_go()
        elif callable(self._handlers[-1]):
            self._is_passed_on = True
            self._let_go()
            os.kill(os.getpid(), signal.SIGTERM)  # the main thread calls it
            self._has_returned.wait()
            time.sleep(STAY_S)
            self._before_end()
            end_by_default()
        else:  # ignored: an agent kills a process that ignores it
            end_by_default()

    def _on_term(self, signum: int, frame: FrameType | None) -> None:
        if self._is_passed_on or self._is_over:
            try:
                self._pass_on(signum, frame)
            finally:  # its error may be caught, and the training go on
                self._has_returned.set()
            return
        before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        if before != self._write:  # another pipe since, so this thread hears it first
            self._next_pipe = before
            self._hear_term()

    def _pass_on(self, signum: int, frame: FrameType | None) -> None:
        """Call the script's own handler. A handler that was set after ours may call ours in turn,
        as the earlier handler. Then the handler before ours has its turn.
        """
        self._depth += 1
        try:
            handler = self._handlers[-self._depth] if self._depth <= len(self._handlers) else None
            if callable(handler):
                handler(signum, frame)
        finally:
            self._depth -= 1

    def _on_child(self, signum: int, frame: FrameType | None) -> None:
        try:
            self._next_child(signum, frame)
        except RuntimeError as error:
            if not str(error).startswith("DataLoader worker") or not self._is_ending():
                raise

    def _is_ending(self) -> bool:
        """Tell whether this process ends anyway, or gets SIGTERM at once."""
        until = time.monotonic() + GROUP_S
        while not (self._heard_at or self._has_failed) and time.monotonic() < until:
            time.sleep(0.01)
        return bool(self._heard_at) or self._has_failed

    def _on_exception(self, kind: Any, error: Any, trace: Any) -> None:
        self._has_failed = True
        if self._heard_at and _is_of_loader(trace):
            say("SIGTERM has ended the workers of a DataLoader, so this process ends: no failure")
        else:
            self._next_hook(kind, error, trace)
        if os.getpid() == self._owner:
            self._before_end()

    def _on_sys_exit(self, code: Any = None, /) -> None:
        """Handle an exit code. The script may have caught the error itself, and have left the
        process group: then no hook is called. Only an exit code other than 0 shows that it has
        failed.
        """
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
        """Leave signals alone, and release everything: the three functions, the pipe and the
        thread. Has no effect after SIGTERM has come.
        """
        is_in_place = signal.getsignal(signal.SIGTERM) == self._on_term
        self.forget()
        if self._owner != os.getpid() or self._is_over or self._heard_at:
            return
        self._is_over = True
        if is_in_place:
            self._handlers.pop()  # it is back, and may call our handler as the earlier one
        self._before_end = self._before_exit = self._let_go = _do_nothing
        atexit.unregister(self._on_exit)
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._next_hook
        if sys.exit == self._on_sys_exit:
            sys.exit = self._next_exit  # type: ignore[assignment]
        self._leave_pipe()

    def _leave_pipe(self) -> None:
        """Let the thread close the pipe. In the main thread no number can be under way to it."""
        with suppress(ValueError):
            writes_to = signal.set_wakeup_fd(-1)
            left = self._next_pipe if writes_to == self._write else writes_to
            signal.set_wakeup_fd(left, warn_on_full_buffer=False)
            os.write(self._write, bytes([_NO_SIGNAL]))

    def forget(self) -> None:
        """Leave signals alone: in a child of fork(), and at the end."""
        with suppress(ValueError):  # not in the main thread
            if signal.getsignal(signal.SIGTERM) == self._on_term:
                signal.signal(signal.SIGTERM, self._handlers[-1] or signal.SIG_DFL)
                signal.set_wakeup_fd(self._next_pipe)
            if signal.getsignal(signal.SIGCHLD) == self._on_child:
                signal.signal(signal.SIGCHLD, self._next_child)


def _is_of_loader(trace: Any) -> bool:
    """Tell whether an error has passed through a DataLoader."""
    frames = (frame for frame, _ in traceback.walk_tb(trace))
    return any(frame.f_globals.get("__name__") == _LOADER for frame in frames)


def _do_nothing() -> None:
    pass


def end_by_default() -> None:
    """End this process as SIGTERM does without a handler. Works from any thread, also while the
    main thread hangs.
    """
    try:
        libc: Any = ctypes.CDLL(None)
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal(int(signal.SIGTERM), None)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.0)
    except (OSError, AttributeError) as error:
        debug("ending this process by SIGTERM", error)
    os._exit(128 + signal.SIGTERM)
