"""torchft's own lighthouse under our service."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec

import pytest

from slurm_hooks.elastic.engines.torchft.lighthouse import (
    Lighthouse,
    LighthouseError,
    LighthouseTiming,
    load,
)

pytestmark = [
    pytest.mark.skipif(find_spec("torchft") is None, reason="torchft is not installed"),
    pytest.mark.torch,
]

MANNERS = LighthouseTiming(beat_s=0.5, join_s=0.5)
PATIENCE = timedelta(seconds=10)


@pytest.fixture
def lighthouse() -> Iterator[Lighthouse]:
    lighthouse = Lighthouse("127.0.0.1", MANNERS)
    yield lighthouse
    lighthouse.close()


class Group:
    """A replica group without a training: torchft's manager alone."""

    def __init__(self, name: str, lighthouse: Lighthouse) -> None:
        torchft = load()
        self._manager = torchft.ManagerServer(
            replica_id=name,
            lighthouse_addr=f"http://127.0.0.1:{lighthouse.port}",
            hostname="127.0.0.1",
            bind="127.0.0.1:0",
            store_addr="127.0.0.1:1",
            world_size=1,
            heartbeat_interval=timedelta(milliseconds=50),
            connect_timeout=PATIENCE,
            quorum_retries=0,
        )
        port = self._manager.address().rpartition(":")[2]
        self._client = torchft.ManagerClient(f"http://127.0.0.1:{port}", connect_timeout=PATIENCE)

    def quorum(self) -> tuple[int, list[str]]:
        """The next step's quorum: its id and its members."""
        answer = self._client._quorum(
            group_rank=0,
            step=1,
            checkpoint_metadata="",
            shrink_only=False,
            timeout=PATIENCE,
            commit_failures=0,
            init_sync=False,
        )
        return answer.quorum_id, sorted(answer.replica_ids)


def test_counting_leaves_an_unused_id_and_time_for_all_to_arrive(
    lighthouse: Lighthouse,
) -> None:
    lighthouse.count_to(96)
    groups = [Group("a", lighthouse), Group("b", lighthouse)]
    quorums: list[tuple[int, list[str]]] = []
    later = threading.Thread(target=lambda: quorums.append(groups[1].quorum()))
    timer = threading.Timer(0.2, later.start)  # within the beat that is still heard
    timer.start()
    began = time.monotonic()
    quorums.append(groups[0].quorum())
    waited_s = time.monotonic() - began
    timer.join()
    later.join(10)
    assert [members for _, members in quorums] == [["a", "b"]] * 2, "nobody begins alone"
    assert {quorum for quorum, _ in quorums} == {97}
    assert waited_s > 0.15


def test_closing_cuts_off_every_waiting_caller() -> None:
    lighthouse = Lighthouse("127.0.0.1", LighthouseTiming(beat_s=5, join_s=5))
    lighthouse.count_to(1)  # no heartbeat delays the quorum
    address = f"http://127.0.0.1:{lighthouse.port}"
    client = load().LighthouseClient(address, connect_timeout=PATIENCE)
    ended: list[float] = []

    def ask() -> None:
        with pytest.raises((RuntimeError, TimeoutError)):
            client.quorum("a", PATIENCE, step=1, world_size=1)
        ended.append(time.monotonic())

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.5)
    closed_at = time.monotonic()
    lighthouse.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", lighthouse.port), timeout=1)
    asking.join(12)
    assert ended[0] - closed_at < 8, "not only when its own patience was over"


def test_an_address_that_is_not_of_this_node_is_no_fault() -> None:
    lighthouse = Lighthouse("192.0.2.1", MANNERS)  # RFC 5737: a reserved address
    socket.create_connection(("127.0.0.1", lighthouse.port), timeout=2).close()
    lighthouse.close()


def test_a_lighthouse_leaves_no_trace_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUST_LOG", raising=False)
    load()
    assert "RUST_LOG" not in os.environ


def test_without_torchft_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchft", None)
    with pytest.raises(LighthouseError, match="pip install torchft"):
        load()
