"""Lend an agent's memory files over a socket to workers that cannot see the agent in /proc.

A container with its own process ids hides the agent. But it shares the node's network, since its
worker could not train with the others otherwise. So the agent listens at an abstract socket name:
this needs no common file system, and disappears with the agent. Each side asks the kernel for the
user at the other end, and refuses every other user.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import threading
from collections.abc import Sequence

from slurm_hooks.elastic.log import debug, suppressed

LIMIT_S = 2.0  # for either side, each time
MOST = 8  # files at once
_PREFIX = "malleable-"
_PEER = struct.Struct("iII")  # struct ucred: process, user, group


def lend(files: Sequence[int]) -> str:
    """Give these open files to any process of this user, for as long as this process lives.

    Return the name to ask for. Raises OSError, AttributeError where the kernel has no such sockets,
    RuntimeError if no thread can start.
    """
    name = _PREFIX + secrets.token_hex(16)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(f"\0{name}")
        listener.listen()
        threading.Thread(target=_serve, args=(listener, list(files)), daemon=True).start()
    except (OSError, RuntimeError):
        listener.close()
        raise
    return name


def borrow(name: str) -> list[int]:
    """Return handles of the files that are lent under this name. Raises OSError, ValueError if no
    process of this user lends them.
    """
    if not name.startswith(_PREFIX):
        raise ValueError("no agent lends its memory")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(LIMIT_S)
        asking.connect(f"\0{name}")
        if not is_own(asking):
            raise ValueError(f"another user's process listens at {name}")
        _, files, _, _ = socket.recv_fds(asking, 1, MOST)
    return files


def _serve(listener: socket.socket, files: list[int]) -> None:
    while True:
        try:
            asking, _ = listener.accept()
        except OSError as error:
            debug("lending memory to a worker", error)
            return
        with asking, suppressed(OSError, doing="lending memory to a worker"):
            asking.settimeout(LIMIT_S)
            if is_own(asking):
                socket.send_fds(asking, [b"."], files)


def is_own(other: socket.socket) -> bool:
    """Tell whether the same user is at the other end, as seen in the user namespace of this
    process.
    """
    data = other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, user, _ = _PEER.unpack(data)
    return bool(user == os.geteuid())
