"""The processes that descend from a command, whatever process groups they have made.

An MPI puts each of its ranks into its own process group. So a signal to the command's group does
not reach them after the program that started them has ended. But they stay in its session. Some
leave the session too. They are descendants of the command while their parents live, and then become
children of this process, which asks the kernel for that.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Optional

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)
# Held from the start of a command until its Kin is made, and during each look. Otherwise another
# thread's look takes the new command for an orphan, and ends it with its own.
starting = threading.RLock()


class Process(NamedTuple):
    """A process. `born` counts clock ticks since the host was booted. With the number, it names a
    process without doubt. `is_zombie`: its parent has not collected it yet.
    """

    pid: int
    parent: int
    session: int
    born: int
    is_zombie: bool = False


class Kin:
    """All descendants of the process `root`, a child of this process and the leader of its
    session. A process that is older than `root` is none of them.
    """

    _roots: frozenset[int] = frozenset()  # of the commands that run in this process

    def __init__(self, root: int, proc: Path = Path("/proc")) -> None:
        self._root = root
        self._proc = proc
        self._known: set[Process] = set()
        first = find(root, proc)
        self._born = first.born if first else 0
        with starting:
            Kin._roots |= {root}

    def look(self) -> set[Process]:
        """Return the processes that live now, and collect adopted processes that have ended.

        They are in the session, or were seen before, or were left to this process by parents that
        have ended, or descend from such a process.
        """
        with starting:
            return self._look()

    def _look(self) -> set[Process]:
        everybody = living(self._proc)
        alive = {process for process in everybody if not process.is_zombie}
        orphans = {process for process in everybody if self._is_orphan(process)}
        kin = {process for process in alive if self._root in (process.pid, process.session)}
        kin |= (self._known | orphans) & alive
        while True:
            pids = {process.pid for process in kin}
            more = {process for process in alive if process.parent in pids} - kin
            if not more:
                break
            kin |= more
        for process in everybody:
            if process.is_zombie and self._is_adopted(process):
                with suppress(OSError):  # another thread was faster
                    os.waitpid(process.pid, os.WNOHANG)
        self._known = kin
        return kin

    def _is_orphan(self, process: Process) -> bool:
        is_free = process.session not in Kin._roots and process.born >= self._born
        return is_free and self._is_adopted(process)

    def _is_adopted(self, process: Process) -> bool:
        """Tell whether a dead parent left it to this process. The other children of this process
        are in its own session, except for the commands.
        """
        is_child = process.parent == os.getpid() and process.session != os.getsid(0)
        return is_child and process.pid not in Kin._roots

    def kill(self) -> None:
        """Send SIGKILL to all that live."""
        for process in self.look():
            with suppress(OSError):  # it has ended
                os.kill(process.pid, signal.SIGKILL)

    def forget(self) -> None:
        """All of them have ended."""
        with starting:
            Kin._roots -= {self._root}


def living(proc: Path) -> Iterable[Process]:
    """Return the processes of this host."""
    processes = (find(int(e.name), proc) for e in proc.iterdir() if e.name.isdecimal())
    return [process for process in processes if process is not None]


def find(pid: int, proc: Path = Path("/proc")) -> Optional[Process]:
    """Return the process that has this number now, or `None`."""
    try:
        text = (proc / str(pid) / "stat").read_text("ascii", "replace")
    except OSError:
        return None
    state, *words = text[text.rindex(")") + 1 :].split()
    is_zombie = state in "ZX"
    return Process(pid, int(words[0]), int(words[2]), int(words[18]), is_zombie)


def adopt() -> None:
    """Make descendants of this process its children when their parents end, instead of children of
    process 1. Needs Linux 3.4: before, they are missed.
    """
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def dies_with(parent: int) -> Callable[[], None]:
    """Return the function that a new child of this process calls first.

    The child then gets a SIGTERM if the thread that has started it ends: without its agent a
    command would run on without control.
    """

    def ask() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)

    return ask


def end_with_parent() -> None:
    """Let the kernel kill this process when the thread that has started it ends. A training process
    would otherwise go on beside the round that others form without its agent.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
