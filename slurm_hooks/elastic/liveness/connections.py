"""Open connections from each watching agent to the agents that it watches.

They carry three things:

* A broken connection is the first sign of a death. A worker whose peer was killed has its error
  within milliseconds, but needs a second or more to end, and only then does torchrun notice. The
  kernel closes the sockets of a killed agent at once. A broken connection is no proof of death,
  so a ping follows.
* A byte from time to time shows that the other end is alive, which saves a heartbeat file.
* Another byte announces news, a new revision of the shared state, which saves frequent reads.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable

from slurm_hooks.elastic.liveness.connecting import Address, connect_all
from slurm_hooks.elastic.liveness.ping import NEWS, TOKEN_BYTES
from slurm_hooks.elastic.log import debug, suppressed
from slurm_hooks.elastic.polling import readable

RECONNECT_S = 5.0  # between two attempts to connect to an agent


class _Connection:
    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.signs = 0  # of life, so far
        self._greeting = TOKEN_BYTES  # bytes of it that are still to come

    def receive(self) -> tuple[bool, bool]:
        """Take in the received bytes. Return whether the connection has ended, and whether there is
        news.
        """
        is_news = False
        try:
            while data := self.end.recv(4096):
                is_news = is_news or NEWS in data[self._greeting :]
                self._greeting -= min(self._greeting, len(data))
                self.signs += 1
        except BlockingIOError:
            return False, is_news
        except OSError as error:
            debug("a connection to another agent broke", error)
            return True, is_news
        return True, is_news


class Connections:
    """Open connections by the token of the agent at the other end."""

    def __init__(self, token: str) -> None:
        self._hello = token.encode("ascii") + NEWS
        self._open: dict[str, _Connection] = {}
        self._tried: dict[str, float] = {}  # when each was last connected to

    def keep(self, addresses: Iterable[Address]) -> None:
        """Connect to these (host, port, token) and to no other agents.

        Takes half a second at most if some do not answer. A new connection begins with NEWS.
        """
        wanted = {token: (host, port) for host, port, token in addresses}
        for token in set(self._open) - set(wanted):
            self._open.pop(token).end.close()
        now = time.monotonic()
        recent = {t: at for t, at in self._tried.items() if t in wanted and now - at < RECONNECT_S}
        due = [t for t in wanted if t not in self._open and t not in recent]
        self._tried = {**recent, **dict.fromkeys(due, now)}
        for token, end in connect_all((*wanted[t], t) for t in due).items():
            if isinstance(end, OSError):
                debug(f"connecting to the agent at {wanted[token]}", end)
                continue
            self._open[token] = _Connection(end)
            with suppressed(OSError, doing=f"greeting the agent at {wanted[token]}"):
                end.send(self._hello)  # if this fails, receive() will find the end

    def filenos(self) -> list[int]:
        """Return the descriptors for poll."""
        return [connection.end.fileno() for connection in self._open.values()]

    def receive(self) -> tuple[frozenset[str], bool]:
        """Return the agents whose connections have ended since, which are closed, and whether there
        is news. Never blocks.
        """
        ready = readable(self.filenos(), 0)
        received = {t: c.receive() for t, c in self._open.items() if c.end.fileno() in ready}
        broken = frozenset(token for token, (has_ended, _) in received.items() if has_ended)
        for token in broken:
            self._open.pop(token).end.close()
            self._tried.pop(token, None)
        return broken, any(is_news for _, is_news in received.values())

    def signs(self, token: str) -> int | None:
        """Return how many signs of life that agent has sent, or `None` without a connection."""
        connection = self._open.get(token)
        return connection.signs if connection else None

    def send_news(self) -> None:
        """Announce news. Never blocks, never raises."""
        for connection in self._open.values():
            with suppressed(OSError, doing="sending news to another agent"):
                connection.end.send(NEWS)

    def close(self) -> None:
        """Close all connections."""
        self.keep(())
