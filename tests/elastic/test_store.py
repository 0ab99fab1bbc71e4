"""The store of torchrun's agent, when a round breaks at its beginning."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from slurm_hooks.elastic.engines.torchrun import store
from slurm_hooks.elastic.engines.torchrun.store import (
    RoundStore,
    arrive,
    connect,
    open_store,
)

pytestmark = [pytest.mark.torch]


class Agent:
    def __init__(self, in_broken_round: bool) -> None:
        self._in_broken_round = in_broken_round

    def succeed(self) -> None: ...

    def await_end(self) -> None: ...

    def is_broken(self) -> bool:
        return self._in_broken_round


def assign(store: Any, rank: int, size: int) -> tuple[int, int]:
    """The answer of torchrun's agent to a new round's store: (first rank, world size)."""
    from torch.distributed.elastic.agent.server.local_elastic_agent import (  # noqa: PLC0415
        LocalElasticAgent,
    )

    spec = SimpleNamespace(role="default", local_world_size=2)
    workers = LocalElasticAgent._assign_worker_ranks(None, store, rank, size, spec)  # type: ignore[arg-type]
    return workers[0].global_rank, workers[0].world_size


def test_ranks_are_exchanged_as_ever() -> None:
    host = open_store("127.0.0.1")
    guest = connect("127.0.0.1", host.port)
    ranks = {}
    other = threading.Thread(
        target=lambda: ranks.update(guest=assign(RoundStore(guest, 1, 2, Agent(False)), 1, 2))
    )
    other.start()
    ranks["host"] = assign(RoundStore(host, 0, 2, Agent(False)), 0, 2)
    other.join(10)
    assert ranks == {"host": (0, 4), "guest": (2, 4)}


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for all members is longer than a test may take."""
    monkeypatch.setattr(store, "ARRIVE_S", 900.0)


@pytest.mark.usefixtures("endless")
def test_the_host_does_not_wait_for_a_lost_member() -> None:
    host = open_store("127.0.0.1")
    assert assign(RoundStore(host, 0, 3, Agent(True)), 0, 3) == (0, 6)


@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_the_loss_of_the_host_does_not_end_the_agent(when: str) -> None:
    host = open_store("127.0.0.1")
    guest = connect("127.0.0.1", host.port)
    box = [host]
    del host
    if when == "before":
        box.clear()
    else:
        threading.Timer(0.5, box.clear).start()
    assert assign(RoundStore(guest, 1, 2, Agent(False)), 1, 2) == (1, 2)


SERVER = """
import time
from slurm_hooks.elastic.engines.torchrun.store import open_store
host = open_store("127.0.0.1")
print(host.port, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def frozen() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process of a store's host, which can be stopped, and its port."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout is not None
        yield host, int(host.stdout.readline())
        host.kill()


@pytest.mark.usefixtures("endless")
def test_a_frozen_host_holds_nobody_once_the_round_is_broken(
    frozen: tuple[subprocess.Popen[str], int],
) -> None:
    host, port = frozen
    guest, broken = connect("127.0.0.1", port), Agent(True)
    host.send_signal(signal.SIGSTOP)
    assert not arrive(guest, 2, broken)
    store.meet(guest, 2, broken)
    assert assign(RoundStore(guest, 1, 2, broken), 1, 2) == (1, 2)


def test_other_keys_are_passed_to_the_real_store() -> None:
    host = open_store("127.0.0.1")
    store = RoundStore(host, 0, 1, Agent(False))
    store.set("a", json.dumps(1))
    assert store.get("a") == b"1"
    assert store.multi_get(["a", "a"]) == [b"1", b"1"]
    assert store.add("n", 2) == 2
