"""The processes that come of a command, whatever process groups they have made for themselves.

An MPI puts each of its ranks into a group of its own, so that a signal to the command's group does
not reach them once what has started them is gone. They stay in its session, though. Those that have
left that too are its descendants as long as their parents live, and then become children of this
process, which asks the kernel for that.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Optional

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    """`born` in ticks of the clock since the host was booted: with the number, it names a process
    for good. `is_over`: its parent has not collected it yet."""

    pid: int
    parent: int
    session: int
    born: int
    is_over: bool = False


class Kin:
    """All that comes of the process `root`, a child of this one and the leader of its session."""

    _roots: frozenset[int] = frozenset()  # of the commands that run in this process

    def __init__(self, root: int, proc: Path = Path("/proc")) -> None:
        self._root = root
        self._proc = proc
        self._known: set[Process] = set()
        Kin._roots |= {root}

    def look(self) -> set[Process]:
        """Those that live now: of the session, seen before, left to this process by parents that
        have ended, or descended from one of these. What has ended of those left to this process
        is collected."""
        everybody = living(self._proc)
        alive = {process for process in everybody if not process.is_over}
        orphans = {process for process in everybody if self._is_orphan(process)}
        found = {process for process in alive if self._root in (process.pid, process.session)}
        found |= (self._known | orphans) & alive
        while True:
            pids = {process.pid for process in found}
            more = {process for process in alive if process.parent in pids} - found
            if not more:
                break
            found |= more
        for process in everybody:
            if process.is_over and self._is_adopted(process):
                with suppress(OSError):  # somebody else was faster
                    os.waitpid(process.pid, os.WNOHANG)
        self._known = found
        return found

    def _is_orphan(self, process: Process) -> bool:
        return self._is_adopted(process) and process.session not in Kin._roots

    def _is_adopted(self, process: Process) -> bool:
        """What this process starts for itself stays in its own session, but for the commands."""
        is_child = process.parent == os.getpid() and process.session != os.getsid(0)
        return is_child and process.pid not in Kin._roots

    def kill(self) -> None:
        """SIGKILL to all that live."""
        for process in self.look():
            with suppress(OSError):  # it has ended
                os.kill(process.pid, signal.SIGKILL)

    def forget(self) -> None:
        """All of them have ended."""
        Kin._roots -= {self._root}


def living(proc: Path) -> Iterable[Process]:
    """The processes of this host."""
    found = (find(int(entry.name), proc) for entry in proc.iterdir() if entry.name.isdecimal())
    return [process for process in found if process is not None]


def find(pid: int, proc: Path = Path("/proc")) -> Optional[Process]:
    """The process that has this number now, None if there is none."""
    try:
        text = (proc / str(pid) / "stat").read_text("ascii", "replace")
    except OSError:
        return None
    state, *words = text[text.rindex(")") + 1 :].split()
    is_over = state in "ZX"
    return Process(pid, int(words[0]), int(words[2]), int(words[18]), is_over)


def adopt() -> None:
    """Descendants of this process whose parents end become its children, not those of process 1.
    Linux 3.4; before, they are not found."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def dies_with(parent: int) -> Callable[[], None]:
    """What a new child of this process calls first, to get a SIGTERM if the thread that has started
    it ends: a command must not go on where nobody would stop it any more."""

    def ask() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)

    return ask
