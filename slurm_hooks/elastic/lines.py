"""Connections that stay open between agents: one that breaks is the first sign of a death.

A worker whose peer was killed has its error within milliseconds, but takes a second or more to
end (traceback, interpreter, threads of the process group), and only then does torchrun notice. The
kernel closes the sockets of a killed agent at once. A sign is no proof: whoever hears it
knocks. It must not know the shared state.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable
from contextlib import suppress

from .door import KNOCK_S


class Lines:
    """Open lines by the token of who is at the other end."""

    def __init__(self) -> None:
        self._open: dict[str, socket.socket] = {}

    def keep(self, doors: Iterable[tuple[str, int, str]]) -> None:
        """Have lines to these (host, port, token) and to nobody else. Takes half a second at
        most for each that does not answer."""
        wanted = {token: (host, port) for host, port, token in doors}
        for token in set(self._open) - set(wanted):
            self._open.pop(token).close()
        for token in set(wanted) - set(self._open):
            with suppress(OSError):
                self._open[token] = socket.create_connection(wanted[token], timeout=KNOCK_S)

    def filenos(self) -> list[int]:
        """For select."""
        return [line.fileno() for line in self._open.values()]

    def broken(self) -> frozenset[str]:
        """Whose lines have ended; they are closed. Never blocks."""
        ready = select.select(self.filenos(), [], [], 0)[0]
        lines = [(t, line) for t, line in self._open.items() if line.fileno() in ready]
        tokens = frozenset(t for t, line in lines if _has_ended(line))
        for token in tokens:
            self._open.pop(token).close()
        return tokens

    def close(self) -> None:
        """Hang up everywhere."""
        self.keep(())


def _has_ended(line: socket.socket) -> bool:
    try:
        return not line.recv(64)
    except OSError:
        return True
