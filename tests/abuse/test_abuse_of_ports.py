"""Strangers at the port on which every agent answers: from the network, without any right."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from abuse.conftest import Row
from slurm_hooks.elastic.liveness.connections import Connections
from slurm_hooks.elastic.liveness.ping import NEWS, SAME_NAME, STRANGERS, PingListener

ME, WATCHER = "a" * 16, "b" * 16
FLOOD = 400


@pytest.fixture
def listener() -> Iterator[PingListener]:
    receiver = PingListener(ME)
    receiver.expect(frozenset({WATCHER}))
    yield receiver
    receiver.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def connect(stack: ExitStack, port: int, said: bytes) -> socket.socket:
    end = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
    end.sendall(said)
    return end


@pytest.mark.parametrize(
    "said",
    [b"", b"x", b"%016d", b"%016d!!!!", WATCHER.encode(), b"\xff" * 70_000],
    ids=["nothing", "a-byte", "a-name", "a-name-and-news", "our-watcher-s-name", "70-kB"],
)
def test_a_flood_of_strangers_takes_bounded_descriptors(
    listener: PingListener, said: bytes, row: Row
) -> None:
    watcher = Connections(WATCHER)
    with ExitStack() as stack:
        watcher.keep([("127.0.0.1", listener.port, ME)])
        listener.answer()
        before = descriptors()
        for number in range(FLOOD):
            words = said % number if b"%" in said else said
            end = connect(stack, listener.port, words[:16_000])
            end.setblocking(False)
            listener.answer()
        kept = descriptors() - before - FLOOD
        assert kept <= STRANGERS + SAME_NAME
        if (
            said != WATCHER.encode()
        ):  # a stranger that takes its name can only make it connect again
            listener.send(NEWS)
            time.sleep(0.05)
            broken, is_news = watcher.receive()
            assert not broken
            assert is_news
    watcher.close()
    row(f"{FLOOD} connections that send {said[:20]!r}", f"{kept} descriptors kept, watcher served")


def test_callers_that_never_cease_do_not_hold_an_agent_up(listener: PingListener, row: Row) -> None:
    with ExitStack() as stack:
        for _ in range(2 * STRANGERS - 1):  # as many as wait in the kernel
            connect(stack, listener.port, b"")
        accepted = []
        for _ in range(3):
            before = descriptors()
            listener.answer()
            accepted.append(descriptors() - before)
    assert accepted[0] == STRANGERS
    assert max(accepted) <= STRANGERS
    row("more callers than are answered at once", f"{STRANGERS} at a time, then the agent's work")


def test_a_watcher_is_answered_while_strangers_crowd(listener: PingListener, row: Row) -> None:
    with ExitStack() as stack:
        for _ in range(STRANGERS):
            connect(stack, listener.port, b"\0" * 16)
        listener.answer()
        watcher = Connections(WATCHER)
        watcher.keep([("127.0.0.1", listener.port, ME)])
        for _ in range(STRANGERS // 2):
            connect(stack, listener.port, b"\0" * 16)
        listener.answer()
        listener.answer()
        assert WATCHER in listener.watchers
        watcher.close()
    row("a watcher connects among strangers", "it is known by its name and stays")
