"""The members of a round gather at the agent of its rank 0. Each says a value, and learns the
values of all when the last has come.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Optional

from slurm_hooks.elastic.engines.gang.channel import (
    Request,
    call,
    receive_line,
    send_line,
)
from slurm_hooks.elastic.log import debug
from slurm_hooks.elastic.polling import readable

GATHER = "gather"
LOOK_S = 0.25  # between two looks whether the round is broken
_KEPT = 16  # gatherings that are remembered, for late members


class Gatherings:
    """The gatherings at the agent of rank 0."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._said: dict[str, dict[int, Any]] = {}

    def handle(self, request: Request, end: socket.socket) -> None:
        """A member has come: send it the values of all, when all have come. Raises OSError,
        ValueError.
        """
        key, rank, size = str(request["key"]), int(request["rank"]), int(request["size"])
        with self._changed:
            said = self._said.setdefault(key, {})
            said[rank] = request["said"]
            while len(self._said) > _KEPT:
                del self._said[next(iter(self._said))]
            self._changed.notify_all()
            while len(said) < size:
                self._changed.wait(1.0)
                if len(said) < size and readable([end.fileno()], 0):
                    return  # the member has gone
        send_line(end, [said[rank] for rank in range(size)])


def gather(
    address: tuple[str, int],
    secret: bytes,
    request: Request,
    patience_s: float,
    is_broken: Callable[[], bool],
) -> Optional[list[Any]]:
    """Return the values of all, by rank, to a `request` with key, rank, size and said.

    Return `None` if the round breaks before, or if members are missing after `patience_s`. Raises
    ChannelError.
    """
    deadline = time.monotonic() + patience_s
    with call(address, secret, {**request, "what": GATHER}) as end:
        try:
            while not readable([end.fileno()], LOOK_S):
                if is_broken() or time.monotonic() > deadline:
                    return None
            end.settimeout(LOOK_S * 4)
            values = json.loads(receive_line(end))
        except (OSError, ValueError) as error:
            debug(f"gathering at {address}", error)
            return None
    return values if isinstance(values, list) and len(values) == request["size"] else None
