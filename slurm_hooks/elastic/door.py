"""A second opinion on who is alive: every agent listens on a port and answers a knock
with its token. A caller may stay on the line (see lines.py).

A heart beat is a file, and files stand still when a node writes a large checkpoint to the
same server. Without a second opinion such a node would be taken for dead each time. And a
process that was killed is told apart at once: its port refuses.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum

KNOCK_S = 0.5
SUSPECT_BEATS = 2.5
HARD_FACTOR = 10.0
CALLERS = 32


class Answer(Enum):
    """What a knock brought."""

    ALIVE = "alive"  # it answers, or at least its kernel still takes calls for it
    GONE = "gone"  # nobody listens there, or somebody else
    SILENT = "silent"  # the host does not answer


def is_dead(silent_s: float, answer: Answer, beat_s: float, keep_alive_s: float) -> bool:
    """Whether to give up an agent whose heart has been still for `silent_s`."""
    if answer is Answer.GONE:
        return silent_s >= SUSPECT_BEATS * beat_s
    if answer is Answer.SILENT:
        return silent_s >= keep_alive_s
    return silent_s >= HARD_FACTOR * keep_alive_s  # alive, but hung


class Door:
    """The listening end; `port` was chosen by the kernel."""

    def __init__(self, token: str) -> None:
        self._token = token.encode("ascii")
        if socket.has_dualstack_ipv6():
            family, is_dual = socket.AF_INET6, True
        else:
            family, is_dual = socket.AF_INET, False
        self._socket = socket.create_server(
            ("", 0), family=family, backlog=64, dualstack_ipv6=is_dual
        )
        self._socket.setblocking(False)
        self._callers: list[socket.socket] = []
        self.port = int(self._socket.getsockname()[1])

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def answer(self) -> None:
        """Answer whoever knocked, and leave it to them to hang up; never blocks, never
        raises."""
        with suppress(OSError):
            while select.select([self._socket], [], [], 0)[0]:
                caller, _ = self._socket.accept()
                caller.setblocking(False)
                self._callers.append(caller)
                caller.send(self._token)
        self._callers = [c for c in self._callers if not _has_hung_up(c)]
        while len(self._callers) > CALLERS:
            self._callers.pop(0).close()

    def close(self) -> None:
        """Answer no more."""
        self._socket.close()
        while self._callers:
            self._callers.pop().close()


def _has_hung_up(caller: socket.socket) -> bool:
    with suppress(BlockingIOError):
        with suppress(ConnectionError):
            caller.recv(64)  # callers say nothing: it is their end
        caller.close()
        return True
    return False


def knock(host: str, port: int, token: str) -> Answer:
    """Ask whether the agent `token` lives at host:port; takes half a second at most,
    name resolution aside."""
    try:
        with socket.create_connection((host, port), timeout=KNOCK_S) as call:
            try:
                name = call.recv(64)
            except OSError:
                return Answer.ALIVE  # connected: the process is there, but busy or stopped
    except ConnectionRefusedError:
        return Answer.GONE
    except OSError:
        return Answer.SILENT
    return Answer.ALIVE if name == token.encode("ascii") else Answer.GONE


def knock_all(doors: Iterable[tuple[str, int, str]]) -> dict[str, Answer]:
    """Knock at many (host, port, token) at a time; answers by token."""
    with ThreadPoolExecutor(max_workers=32) as pool:
        asked = {token: pool.submit(knock, host, port, token) for host, port, token in doors}
        return {token: future.result() for token, future in asked.items()}
