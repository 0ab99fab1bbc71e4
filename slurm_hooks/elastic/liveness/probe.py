"""A second opinion on who is alive: every agent listens on a port and answers a knock
with its token. A caller that says its own name stays on the line (see lines.py), and hears
then and now that this end lives, and when there is news.

Hearts may stand still: a file does when a node writes a large checkpoint to the same
server. Without a second opinion such a node would be taken for dead each time. And a process
that was killed is told apart at once: its port refuses.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum

from slurm_hooks.elastic.polling import readable

PROBE_S = 0.5
SUSPECT_BEATS = 2.5
HARD_FACTOR = 10.0
CALLERS = 32  # of those without a name
CALLS_AT_ONCE = 32
TOKEN_BYTES = 16
ALIVE, NEWS = b".", b"!"


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


class ProbeListener:
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
        self._callers: list[_Caller] = []
        self.port = int(self._socket.getsockname()[1])

    def filenos(self) -> list[int]:
        """For poll."""
        return [self._socket.fileno(), *(c.end.fileno() for c in self._callers)]

    @property
    def listeners(self) -> frozenset[str]:
        """The names of those who have stayed on the line."""
        return frozenset(c.name for c in self._callers if c.name)

    def answer(self) -> bool:
        """Answer whoever knocked, and leave it to them to hang up; whether somebody has news.
        Never blocks, never raises."""
        with suppress(OSError):
            while readable([self._socket.fileno()], 0):
                end, _ = self._socket.accept()
                end.setblocking(False)
                end.send(self._token)
                self._callers.append(_Caller(end))
        ready = readable([c.end.fileno() for c in self._callers], 0)
        news = [c.listen() for c in self._callers if c.end.fileno() in ready]
        self._hang_up()
        return any(news)

    def _hang_up(self) -> None:
        nameless = [c for c in self._callers if not c.name]
        gone = {*nameless[:-CALLERS], *(c for c in self._callers if c.has_hung_up)}
        for caller in gone:
            caller.end.close()
        self._callers = [c for c in self._callers if c not in gone]

    def tell(self, word: bytes) -> None:
        """Say ALIVE or NEWS to those who stay on the line. Never blocks, never raises."""
        for caller in self._callers:
            if caller.name:
                with suppress(OSError):
                    caller.end.send(word)

    def close(self) -> None:
        """Answer no more."""
        self._socket.close()
        while self._callers:
            self._callers.pop().end.close()


class _Caller:
    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.name = ""
        self.has_hung_up = False
        self._said = b""

    def listen(self) -> bool:
        """Take in what it says: its name first. Whether it has news."""
        try:
            said = self.end.recv(4096)
        except BlockingIOError:
            return False
        except OSError:
            said = b""
        self.has_hung_up = not said
        self._said = (self._said + said)[: TOKEN_BYTES + 1]
        if len(self._said) >= TOKEN_BYTES:
            self.name = self._said[:TOKEN_BYTES].decode("ascii", "replace")
        return bool(self.name) and NEWS in said


def probe(host: str, port: int, token: str) -> Answer:
    """Ask whether the agent `token` lives at host:port; takes half a second at most,
    name resolution aside."""
    try:
        with socket.create_connection((host, port), timeout=PROBE_S) as call:
            try:
                name = call.recv(64)
            except OSError:
                return Answer.ALIVE  # connected: the process is there, but busy or stopped
    except ConnectionRefusedError:
        return Answer.GONE
    except OSError:
        return Answer.SILENT
    return Answer.ALIVE if name[:TOKEN_BYTES] == token.encode("ascii") else Answer.GONE


def probe_all(addresses: Iterable[tuple[str, int, str]]) -> dict[str, Answer]:
    """Knock at many (host, port, token) at a time; answers by token."""
    with ThreadPoolExecutor(max_workers=CALLS_AT_ONCE) as pool:
        asked = {token: pool.submit(probe, host, port, token) for host, port, token in addresses}
        return {token: future.result() for token, future in asked.items()}
