"""The store of one round: a fresh TCPStore on the agent of rank 0, its port chosen by the
kernel. A new one per round, so that no host is needed longer than its round, and keys of
an old round cannot be mistaken for new ones.

It must not know the shared directory; whoever waits here brings a question to ask
meanwhile ("is this round broken?").
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined,unused-ignore]

STORE_TIMEOUT_S = 300.0
CONNECT_S = 20.0
ARRIVE_S = 60.0
MEET_S = 5.0
GATHER_S = 0.3
_TERMINAL = "torchelastic/agent/terminal_state"


def open_store(host: str) -> Any:
    """Serve a store on all interfaces, reached as `host`."""
    return TCPStore(
        host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=STORE_TIMEOUT_S)
    )


def connect(host: str, port: int) -> Any:
    """A client of the store at host:port. Raises RuntimeError if there is none."""
    store = TCPStore(
        host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=CONNECT_S)
    )
    store.set_timeout(timedelta(seconds=STORE_TIMEOUT_S))
    return store


def arrive(store: Any, size: int, is_broken: Callable[[], bool]) -> bool:
    """Wait until all `size` agents hold the round's store; False if that will not be.
    What torchrun does next with the store blocks for minutes if somebody is missing."""
    return _gather(store, "malleable/arrived", size, ARRIVE_S, is_broken)


def meet(store: Any, size: int, gather_s: float, is_broken: Callable[[], bool]) -> None:
    """Wait, seconds at most, until all agents of the round are about to stop their
    workers; the last one gives others `gather_s` to bring up wishes of their own. The
    workers train on meanwhile."""
    _gather(store, "malleable/stopping", size, MEET_S, is_broken, gather_s)


def _gather(
    store: Any,
    key: str,
    size: int,
    patience_s: float,
    is_broken: Callable[[], bool],
    linger_s: float = 0.0,
) -> bool:
    pause_s = 0.02 if size <= 64 else 0.1
    deadline = time.monotonic() + patience_s
    asked = time.monotonic()
    try:
        if store.add(key, 1) >= size:
            time.sleep(linger_s)
            store.set(f"{key}/all", "1")
            return True
        while time.monotonic() < deadline:
            if store.check([f"{key}/all"]):
                return True
            if time.monotonic() - asked > 0.25:
                asked = time.monotonic()
                if is_broken():
                    return False
            time.sleep(pause_s)
    except RuntimeError:
        pass  # torch's DistError: the host of the store is gone
    return False


class RoundStore:
    """The store as torchrun's agent sees it. All goes to the real one, except for the
    barrier at the end of a successful training: that one would wait five minutes for
    an agent that is gone, and it is how one learns that the workers have succeeded."""

    def __init__(
        self, store: Any, on_success: Callable[[], None], await_end: Callable[[], None]
    ) -> None:
        self._store = store
        self._on_success = on_success
        self._await_end = await_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def add(self, key: str, amount: int) -> int:
        """As Store.add; an arrival at the final barrier is reported instead."""
        if key.startswith(_TERMINAL):
            self._on_success()
            return 0
        return int(self._store.add(key, amount))

    def wait(self, keys: list[str], *timeout: timedelta) -> None:
        """As Store.wait; the final barrier waits for the members, not for keys."""
        if keys and keys[0].startswith(_TERMINAL):
            self._await_end()
            return
        self._store.wait(keys, *timeout)
