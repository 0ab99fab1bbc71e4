"""The processes that come of a command, whatever process groups they have made for themselves.

An MPI puts each of its ranks into a group of its own, so that a signal to the command's group does
not reach them once what has started them is gone. They stay in its session, though; those that do
not were its descendants when somebody looked.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Optional

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    """`born` in ticks of the clock since the host was booted: with the number, it names a process
    for good."""

    pid: int
    parent: int
    session: int
    born: int


class Kin:
    """All that comes of the process `root`, the leader of its session."""

    def __init__(self, root: int, proc: Path = Path("/proc")) -> None:
        self._root = root
        self._proc = proc
        self._known: set[Process] = set()

    def look(self) -> set[Process]:
        """Those that live now: of the session, seen before, or descended from one of these."""
        alive = living(self._proc)
        found = {p for p in alive.values() if self._root in (p.pid, p.session)}
        found |= self._known & set(alive.values())
        while True:
            pids = {process.pid for process in found}
            more = {p for p in alive.values() if p.parent in pids} - found
            if not more:
                break
            found |= more
        self._known = found
        return found

    def kill(self) -> None:
        """SIGKILL to all that live."""
        for process in self.look():
            with suppress(OSError):  # it has ended
                os.kill(process.pid, signal.SIGKILL)


def living(proc: Path) -> Mapping[int, Process]:
    """The processes of this host that have not ended, by their numbers."""
    found = (_read(entry) for entry in proc.iterdir() if entry.name.isdecimal())
    return {process.pid: process for process in found if process is not None}


def _read(entry: Path) -> Optional[Process]:
    """None if it has ended, or is only not yet collected by its parent."""
    try:
        text = (entry / "stat").read_text("ascii", "replace")
    except OSError:
        return None
    state, *words = text[text.rindex(")") + 1 :].split()
    if state in "ZX":
        return None
    return Process(int(entry.name), int(words[0]), int(words[2]), int(words[18]))


def dies_with(parent: int) -> Callable[[], None]:
    """What a new child of this process calls first, to get a SIGTERM if the thread that has started
    it ends: a command must not go on where nobody would stop it any more."""

    def ask() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)

    return ask
