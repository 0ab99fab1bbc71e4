"""The store of a round: a fresh TCPStore on the agent of rank 0, with a port chosen by the kernel.

Every round has a new store. So a host is needed for its round only, and keys of an old round are
not mistaken for new keys. The store asks its agent about the round.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from torch.distributed import TCPStore  # type: ignore[attr-defined,unused-ignore]

from slurm_hooks.elastic.log import debug, suppressed

STORE_TIMEOUT_S = 300.0
CONNECT_S = 20.0
ARRIVE_S = 60.0
MEET_S = 5.0
GATHER_S = 0.3
LOOK_S = 0.25  # between two looks at the round, while the store does not answer
_TERMINAL = "torchelastic/agent/terminal_state"
_ROLE_INFO, _ASSIGNED = "torchelastic/role_info/", "torchelastic/assigned_ranks/"


class Agent(Protocol):
    """The agent to which a store belongs, as the store asks and tells it."""

    def succeed(self) -> None:
        """The workers have finished the training."""

    def await_end(self) -> None:
        """Return when the training has ended for all."""

    def is_broken(self) -> bool:
        """Tell whether the round has lost a member."""


def open_store(host: str) -> Any:
    """Serve a store on all interfaces, reached as `host`."""
    return TCPStore(
        host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=STORE_TIMEOUT_S)
    )


def connect(host: str, port: int) -> Any:
    """Return a client of the store at host:port. Raises RuntimeError if no store is there."""
    store = TCPStore(
        host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=CONNECT_S)
    )
    store.set_timeout(timedelta(seconds=STORE_TIMEOUT_S))
    return store


def arrive(store: Any, size: int, agent: Agent) -> bool:
    """Wait until all `size` agents hold the round's store. Return False if that fails.

    torchrun's next use of the store blocks for minutes if a member is missing.
    """
    return _gather(store, "malleable/arrived", size, ARRIVE_S, agent)


def meet(store: Any, size: int, agent: Agent, linger_s: float = GATHER_S) -> None:
    """Wait, seconds at most, until all agents of the round are about to stop their workers.

    The last agent gives others `linger_s` to bring up their own wishes. That is free while the
    workers go on with their training. If they wait at a boundary, there was time for wishes before.
    """
    _gather(store, "malleable/stopping", size, MEET_S, agent, linger_s)


def _asked(agent: Agent, call: Callable[..., Any], *args: Any) -> Any:
    """Return the answer of the store. Raises RuntimeError if it fails, or if the round breaks
    before.

    torch itself would wait for a host without power or a frozen host for minutes. The thread that
    asks is left behind then, with a store that nobody else uses.
    """
    answers: list[Any] = []
    errors: list[Exception] = []

    def ask() -> None:
        try:
            answers.append(call(*args))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(LOOK_S)
    while thread.is_alive():
        if agent.is_broken():
            raise RuntimeError("the store does not answer, and its round is broken")
        thread.join(LOOK_S)
    if errors:
        raise errors[0]
    return answers[0]


def _gather(
    store: Any,
    key: str,
    size: int,
    patience_s: float,
    agent: Agent,
    linger_s: float = 0.0,
) -> bool:
    pause_s = 0.02 if size <= 64 else 0.1
    deadline = time.monotonic() + patience_s
    asked_at = time.monotonic()
    try:
        if _asked(agent, store.add, key, 1) >= size:
            time.sleep(linger_s)
            _asked(agent, store.set, f"{key}/all", "1")
            return True
        while time.monotonic() < deadline:
            if _asked(agent, store.check, [f"{key}/all"]):
                return True
            if time.monotonic() - asked_at > LOOK_S:
                asked_at = time.monotonic()
                if agent.is_broken():
                    return False
            time.sleep(pause_s)
    except RuntimeError as error:  # torch's DistError: the host of the store is gone
        debug(f"waiting for all agents at {key}", error)
    return False


class RoundStore:
    """The store as torchrun's agent sees it, in the round as `rank` of `size` agents. All calls
    reach the real store, with two exceptions:

    * The barrier at the end of a successful training would wait five minutes for an agent that is
      gone. It also shows that the workers have succeeded.
    * The exchange of worker ranks at the beginning of a round would wait as long for an agent that
      has died since, or end this agent if the dead agent had the store. It gets an answer at once
      then. Workers start in a round that is broken already, and are stopped for the next.
    """

    def __init__(self, store: Any, rank: int, size: int, agent: Agent) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._agent = agent
        self._role_info = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def set(self, key: str, value: Any) -> None:
        """As Store.set."""
        if not key.startswith(_ROLE_INFO):
            self._store.set(key, value)
            return
        self._role_info = value
        # the host of the store is gone: seen when it is asked
        with suppressed(RuntimeError, doing=f"setting {key}"):
            _asked(self._agent, self._store.set, key, value)

    def multi_get(self, keys: list[str]) -> Any:
        """As Store.multi_get. An agent that is gone counts like this agent."""
        if keys and keys[0].startswith(_ROLE_INFO) and not self._come(keys):
            return [self._role_info] * len(keys)
        return self._store.multi_get(keys)

    def get(self, key: str) -> Any:
        """As Store.get. In a broken round each agent counts as having a single worker."""
        if key.startswith(_ASSIGNED):
            if self._come([key]):
                with suppressed(RuntimeError, doing=f"getting {key}"):
                    return _asked(self._agent, self._store.get, key)
            return json.dumps([self._rank, self._size] * 2).encode()
        return self._store.get(key)

    def _come(self, keys: list[str]) -> bool:
        """Wait for the keys. Return False if the round breaks before they are there."""
        asked_at = time.monotonic()
        try:
            while not _asked(self._agent, self._store.check, keys):
                if time.monotonic() - asked_at > LOOK_S:
                    asked_at = time.monotonic()
                    if self._agent.is_broken():
                        return False
                time.sleep(0.01)
        except RuntimeError as error:
            debug(f"waiting for {keys[0]}", error)
            return False
        return True

    def add(self, key: str, amount: int) -> int:
        """As Store.add. An arrival at the final barrier is reported instead."""
        if key.startswith(_TERMINAL):
            self._agent.succeed()
            return 0
        return int(self._store.add(key, amount))

    def wait(self, keys: list[str], *timeout: timedelta) -> None:
        """As Store.wait. The final barrier waits for the members, not for keys."""
        if keys and keys[0].startswith(_TERMINAL):
            self._agent.await_end()
            return
        self._store.wait(keys, *timeout)
