"""Requests between the agents of a job: a line of JSON each way, over a connection whose caller has
proved that it knows the job's secret.

The agent sends a challenge, and the caller sends its answer and the request. A handler for that
kind of request does the rest. Everything is bounded, since others on the network may connect too.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from slurm_hooks.elastic.engines.gang.secret import answer, is_answer
from slurm_hooks.elastic.log import debug, suppressed

CONNECT_S = 10.0
GREETING_S = 10.0  # for a stranger to prove that it knows the secret
STRANGERS = 64  # at a time
AGAIN_S = 0.1
_LINE = 1 << 20  # bytes of a request
_CHALLENGE = 16  # bytes

Request = dict[str, Any]
Handler = Callable[[Request, socket.socket], None]


class ChannelError(Exception):
    """The other agent could not be asked. The message says why."""


class Listener:
    """Answers requests on a port that the kernel chose, a thread each. `handlers` by the request's
    `what`.
    """

    def __init__(self, secret: bytes, handlers: Mapping[str, Handler]) -> None:
        self.secret = secret
        self._handlers = handlers
        self._turn = threading.Lock()
        self._strangers: dict[socket.socket, None] = {}  # the oldest first
        self._is_closed = False
        is_dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if is_dual else socket.AF_INET
        self._socket = socket.create_server(
            ("", 0), family=family, backlog=128, dualstack_ipv6=is_dual
        )
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        """Listen no more. Requests under way go on."""
        self._is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _listen(self) -> None:
        while not self._is_closed:
            try:
                end, _ = self._socket.accept()
            except OSError as error:  # there may be no descriptor left for now
                if not self._is_closed:
                    debug("listening for other agents", error)
                    time.sleep(AGAIN_S)
                continue
            self._admit(end)
            with suppressed(RuntimeError, doing="starting a thread for another agent"):
                threading.Thread(target=self._serve, args=(end,), daemon=True).start()

    def _admit(self, end: socket.socket) -> None:
        """Admit a connection. If there are too many strangers, the stranger that has been silent
        longest is cut off.
        """
        with self._turn:
            if len(self._strangers) >= STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._strangers[end] = None

    def _serve(self, end: socket.socket) -> None:
        with end, suppressed(OSError, ValueError, doing="answering another agent"):
            try:
                request = self._greet(end)
            finally:
                with self._turn:
                    self._strangers.pop(end, None)
            if request is not None:
                self._handlers[request["what"]](request, end)

    def _greet(self, end: socket.socket) -> Request | None:
        """Return the request of a caller that knows the secret, or `None`. Raises OSError,
        ValueError.
        """
        challenge = secrets.token_hex(_CHALLENGE).encode()
        end.settimeout(GREETING_S)
        end.sendall(challenge + b"\n")
        request = request_in(receive_line(end), self.secret, challenge)
        if request is None or request.get("what") not in self._handlers:
            debug("a stranger has connected to this agent")
            return None
        end.settimeout(None)
        return request


def request_in(line: bytes, secret: bytes, challenge: bytes) -> Request | None:
    """Return the request of a caller that knows the secret, or `None`. Raises ValueError."""
    try:
        said = json.loads(line)
    except RecursionError as error:
        raise ValueError("no request nests that deep") from error
    request: Request = said if isinstance(said, dict) else {}
    return request if is_answer(secret, challenge, str(request.get("answer", ""))) else None


def call(address: tuple[str, int], secret: bytes, request: Request) -> socket.socket:
    """Return a connection on which this request has been made. Raises ChannelError."""
    host, port = address
    try:
        end = socket.create_connection(address, timeout=CONNECT_S)
        try:
            challenge = receive_line(end)
            send_line(end, {**request, "answer": answer(secret, challenge)})
        except (OSError, ValueError):
            end.close()
            raise
    except (OSError, ValueError) as error:
        raise ChannelError(f"cannot reach the agent at {host} port {port}: {error}") from None
    end.settimeout(None)
    return end


def send_line(end: socket.socket, value: Any) -> None:
    """Send a value as a line of JSON. Raises OSError."""
    end.sendall(json.dumps(value).encode() + b"\n")


def receive_line(end: socket.socket) -> bytes:
    """Return the line that the other sends, and no data after it, without its end.

    Raises OSError, and ValueError if the line is too long or the other has gone.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        data = end.recv(65536)
        if not data or len(line) > _LINE:
            raise ValueError("the line has no end")
        line += data
    return bytes(line[:-1])
