"""A second check of life: every agent listens on a port and answers a ping with its token.

A client that sends its own token is a watcher (see connections.py). It stays connected, gets a sign
of life now and then, and is notified of news.

Heartbeats can stall, for instance the heartbeat file's while a node writes a large checkpoint to
the same server. Without a second check such a node would count as dead each time. And a killed
process is recognised at once, because its port refuses.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable
from enum import Enum
from itertools import islice

from slurm_hooks.elastic.liveness.connecting import Address, Connected, connect_all
from slurm_hooks.elastic.log import debug, suppressed
from slurm_hooks.elastic.polling import as_ready, readable

ANSWER_S = 0.5  # after CONNECT_S at most
SUSPECT_BEATS = 2.5
HARD_FACTOR = 10.0
STRANGERS = 32  # connections of unexpected clients, and new connections to accept at once
SAME_NAME = 2  # connections of an expected watcher: a broken connection may still look open
AT_ONCE = 128  # pings, each of which takes a descriptor
WAITING = 4096  # pings of an agent that hangs; the kernel keeps them, if it allows as many
TOKEN_BYTES = 16
ALIVE, NEWS = b".", b"!"


class Answer(Enum):
    """The answer to a ping."""

    ALIVE = "alive"  # it answers, or at least its kernel still accepts connections for it
    GONE = "gone"  # no process listens there, or another process
    SILENT = "silent"  # the host does not answer
    UNASKED = "unasked"  # this process could not ask, as without a free descriptor


def is_dead(silent_s: float, answer: Answer, beat_s: float, keep_alive_s: float) -> bool:
    """Tell whether to give up an agent that has shown no sign of life for `silent_s`."""
    if answer is Answer.GONE:
        return silent_s >= SUSPECT_BEATS * beat_s
    if answer is Answer.SILENT:
        return silent_s >= keep_alive_s
    hung_s = HARD_FACTOR * keep_alive_s
    return answer is Answer.ALIVE and silent_s >= hung_s


class PingListener:
    """The listening end. The kernel chose the `port`."""

    def __init__(self, token: str) -> None:
        self._token = token.encode("ascii")
        if socket.has_dualstack_ipv6():
            family, is_dual = socket.AF_INET6, True
        else:
            family, is_dual = socket.AF_INET, False
        self._socket = socket.create_server(
            ("", 0), family=family, backlog=WAITING, dualstack_ipv6=is_dual
        )
        self._socket.setblocking(False)
        self._clients: list[_Client] = []
        self._expected: frozenset[str] = frozenset()
        self.port = int(self._socket.getsockname()[1])

    def filenos(self) -> list[int]:
        """Return the descriptors for poll."""
        return [self._socket.fileno(), *(c.end.fileno() for c in self._clients)]

    @property
    def watchers(self) -> frozenset[str]:
        """The tokens of the clients that stay connected."""
        return frozenset(c.name for c in self._clients if c.name)

    def expect(self, names: frozenset[str]) -> None:
        """Note the watchers of this agent. Room for them is kept, whichever others connect."""
        self._expected = names

    def answer(self) -> bool:
        """Answer new pings, which their clients close, and take in the watchers' bytes. Tell
        whether there is news. Never blocks, never raises.
        """
        with suppressed(OSError, doing="accepting a ping"):
            self._accept()
        ready = readable([c.end.fileno() for c in self._clients], 0)
        news = [c.receive() for c in self._clients if c.end.fileno() in ready]
        self._drop()
        return any(news)

    def _accept(self) -> None:
        """Accept some of the waiting clients, so that a call stays short. Raises OSError."""
        for _ in range(STRANGERS):
            if not readable([self._socket.fileno()], 0):
                return
            end, _ = self._socket.accept()
            end.setblocking(False)
            self._clients.append(_Client(end))
            end.send(self._token)

    def _drop(self) -> None:
        """Drop clients that have closed, and the oldest clients above the limits."""
        there = [c for c in self._clients if not c.has_closed]
        kept = there[:0]
        room = {**dict.fromkeys(self._expected, SAME_NAME), "": STRANGERS}
        for client in reversed(there):
            name = client.name if client.name in self._expected else ""
            if room[name]:
                room[name] -= 1
                kept.insert(0, client)
        for client in self._clients:
            if client not in kept:
                client.end.close()
        self._clients = kept

    def send(self, word: bytes) -> None:
        """Send ALIVE or NEWS to the watchers. Never blocks, never raises."""
        for client in self._clients:
            if client.name:
                with suppressed(OSError, doing="sending a sign of life"):
                    client.end.send(word)

    def close(self) -> None:
        """Answer no more."""
        self._socket.close()
        while self._clients:
            self._clients.pop().end.close()


class _Client:
    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.name = ""
        self.has_closed = False
        self._head = b""

    def receive(self) -> bool:
        """Take in its bytes, its name first. Tell whether it has news."""
        try:
            data = self.end.recv(4096)
        except BlockingIOError:
            return False
        except OSError as error:
            debug("a connection from another agent broke", error)
            data = b""
        self.has_closed = not data
        self._head = (self._head + data)[: TOKEN_BYTES + 1]
        if len(self._head) >= TOKEN_BYTES:
            self.name = self._head[:TOKEN_BYTES].decode("ascii", "replace")
        return bool(self.name) and NEWS in data


def ping(host: str, port: int, token: str) -> Answer:
    """Ask whether the agent `token` is alive at host:port. Takes a second at most, name resolution
    aside.
    """
    return ping_all([(host, port, token)])[token]


def ping_all(addresses: Iterable[Address]) -> dict[str, Answer]:
    """Ping many agents at a time. Return answers by token."""
    rest, answers = iter(addresses), {}
    while some := list(islice(rest, AT_ONCE)):
        ends = connect_all(some)
        names = _names({t: end for t, end in ends.items() if isinstance(end, socket.socket)})
        for host, port, token in some:
            end = ends.get(token)
            answers[token] = _answer(token, end, names.get(token))
            if isinstance(end, OSError):
                debug(f"pinging the agent at {host} port {port}", end)
            elif end:
                end.close()
    return answers


def _names(ends: dict[str, socket.socket]) -> dict[str, bytes]:
    """Return the names with which the agents that answer in time identify themselves."""
    tokens, names = {end.fileno(): token for token, end in ends.items()}, {}
    for fileno in as_ready(tokens, ANSWER_S, select.POLLIN):
        token = tokens[fileno]
        with suppressed(OSError, doing="waiting for an agent to answer"):
            try:
                names[token] = ends[token].recv(64)
            except ConnectionResetError:
                names[token] = b""  # the process ended before it accepted this connection
    return names


def _answer(token: str, end: Connected | None, name: bytes | None) -> Answer:
    if end is None:
        return Answer.UNASKED
    if isinstance(end, OSError):
        return Answer.GONE if isinstance(end, ConnectionRefusedError) else Answer.SILENT
    if name is None:
        return Answer.ALIVE  # connected: the process is there, but busy or stopped
    return Answer.ALIVE if name[:TOKEN_BYTES] == token.encode("ascii") else Answer.GONE
