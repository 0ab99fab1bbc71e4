"""Connect to many agents at a time, in the calling thread. If the limit of processes is reached, a
pool gets no threads, and the heartbeat must not fail then.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Union

from slurm_hooks.elastic.log import debug
from slurm_hooks.elastic.polling import as_ready

CONNECT_S = 0.5
RESOLVE_S = 2.0  # names are resolved one after another
_REMEMBERED = 4096

Place = tuple[Any, Any]  # family and address
Address = tuple[str, int, str]  # host, port, token
Connected = Union[socket.socket, OSError]


def connect_all(addresses: Iterable[Address]) -> dict[str, Connected]:
    """Return non-blocking connections by token, or the error.

    A token is missing if this process could not even try. Takes CONNECT_S at most for hosts that
    have a single address each.
    """
    ends: dict[str, Connected] = {}
    left = _resolved(addresses, ends)
    while left:
        begun = {token: _begin(*places.pop(0)) for token, places in left.items()}
        ends.update(_finished({t: end for t, end in begun.items() if end is not None}))
        left = {t: p for t, p in left.items() if p and isinstance(ends.get(t), OSError)}
    return ends


def _resolved(addresses: Iterable[Address], failed: dict[str, Connected]) -> dict[str, list[Place]]:
    places = {}
    deadline = time.monotonic() + RESOLVE_S
    for host, port, token in addresses:
        if time.monotonic() > deadline:
            debug(f"resolving names takes too long, not connecting to {host}")
            continue
        try:
            places[token] = list(_places(host, port))
        except (OSError, UnicodeError) as error:
            failed[token] = OSError(f"{host}: {error}")
    return places


@lru_cache(_REMEMBERED)
def _places(host: str, port: int) -> tuple[Place, ...]:
    """Return the addresses of a host. They stay: an agent keeps its address, and the resolver may
    fail later.
    """
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple((family, address) for family, _, _, _, address in infos)


def _begin(family: int, address: Any) -> Connected | None:
    try:
        end = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            return error
        debug("opening a socket", error)  # no descriptor or memory is free here
        return None
    end.setblocking(False)
    code = end.connect_ex(address)
    if code in (0, errno.EINPROGRESS):
        return end
    end.close()
    return OSError(code, os.strerror(code))


def _finished(begun: dict[str, Connected]) -> dict[str, Connected]:
    ends = {token: end for token, end in begun.items() if isinstance(end, socket.socket)}
    tokens = {end.fileno(): token for token, end in ends.items()}
    results: dict[str, Connected] = {**begun, **dict.fromkeys(ends, TimeoutError("no answer"))}
    for fileno in as_ready(tokens, CONNECT_S, select.POLLOUT):
        token = tokens[fileno]
        code = ends[token].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        results[token] = OSError(code, os.strerror(code)) if code else ends[token]
    for token, end in ends.items():
        if results[token] is not end:
            end.close()
    return results
