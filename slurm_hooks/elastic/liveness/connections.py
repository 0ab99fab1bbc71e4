"""Connections that stay open between agents, from who watches to who is watched.

They carry three things. One that breaks is the first sign of a death: a worker whose peer was
killed has its error within milliseconds, but takes a second or more to end, and only then does
torchrun notice; the kernel closes the sockets of a killed agent at once. A sign is no proof:
whoever hears it knocks. A byte now and then says that the other end lives, so that its heart need
not be a file. And a byte says that there is news, so that nobody has to look for it often.
It must not know the shared state.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from slurm_hooks.elastic.liveness.probe import CALLS_AT_ONCE, NEWS, PROBE_S, TOKEN_BYTES
from slurm_hooks.elastic.polling import readable

AGAIN_S = 5.0  # until somebody who did not answer is called again


class _Connection:
    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.heard = 0  # signs of life so far
        self._greeting = TOKEN_BYTES  # bytes of it that are still to come

    def listen(self) -> tuple[bool, bool]:
        """Take in what was said: whether the line has ended, and whether there is news."""
        is_news = False
        try:
            while said := self.end.recv(4096):
                is_news = is_news or NEWS in said[self._greeting :]
                self._greeting -= min(self._greeting, len(said))
                self.heard += 1
        except BlockingIOError:
            return False, is_news
        except OSError:
            return True, is_news
        return True, is_news


class Connections:
    """Open lines by the token of who is at the other end."""

    def __init__(self, token: str) -> None:
        self._hello = token.encode("ascii") + NEWS
        self._open: dict[str, _Connection] = {}
        self._called: dict[str, float] = {}

    def keep(self, addresses: Iterable[tuple[str, int, str]]) -> None:
        """Have lines to these (host, port, token) and to nobody else; takes half a second at
        most if some do not answer. Whoever gets a new line is told that there is news."""
        wanted = {token: (host, port) for host, port, token in addresses}
        for token in set(self._open) - set(wanted):
            self._open.pop(token).end.close()
        now = time.monotonic()
        recent = {t: at for t, at in self._called.items() if t in wanted and now - at < AGAIN_S}
        due = [t for t in wanted if t not in self._open and t not in recent]
        self._called = {**recent, **dict.fromkeys(due, now)}
        if due:
            with ThreadPoolExecutor(max_workers=CALLS_AT_ONCE) as pool:
                for token, end in zip(due, pool.map(self._call, [wanted[t] for t in due])):
                    if end:
                        self._open[token] = _Connection(end)

    def _call(self, place: tuple[str, int]) -> socket.socket | None:
        try:
            end = socket.create_connection(place, timeout=PROBE_S)
        except OSError:
            return None
        end.setblocking(False)
        with suppress(OSError):  # ended already: listen() will tell
            end.send(self._hello)
        return end

    def filenos(self) -> list[int]:
        """For poll."""
        return [line.end.fileno() for line in self._open.values()]

    def listen(self) -> tuple[frozenset[str], bool]:
        """Whose lines have ended since, which are closed, and whether there is news. Never
        blocks."""
        ready = readable(self.filenos(), 0)
        heard = {t: x.listen() for t, x in self._open.items() if x.end.fileno() in ready}
        broken = frozenset(token for token, (has_ended, _) in heard.items() if has_ended)
        for token in broken:
            self._open.pop(token).end.close()
            self._called.pop(token, None)
        return broken, any(is_news for _, is_news in heard.values())

    def heard(self, token: str) -> int | None:
        """How often the one at the other end was heard; None without a line."""
        line = self._open.get(token)
        return line.heard if line else None

    def tell(self) -> None:
        """Say that there is news. Never blocks, never raises."""
        for line in self._open.values():
            with suppress(OSError):
                line.end.send(NEWS)

    def close(self) -> None:
        """Hang up everywhere."""
        self.keep(())
