"""Requests between agents, while strangers disturb their ports."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from slurm_hooks.elastic.engines.gang import channel as module
from slurm_hooks.elastic.engines.gang.channel import (
    STRANGERS,
    ChannelError,
    Listener,
    Request,
    call,
    receive_line,
    send_line,
)

SECRET = b"s" * 64


def echo(request: Request, end: socket.socket) -> None:
    send_line(end, request["said"])


@pytest.fixture
def listener() -> Iterator[Listener]:
    channel = Listener(SECRET, {"echo": echo})
    yield channel
    channel.close()


def asked(listener: Listener, said: object, secret: bytes = SECRET) -> object:
    with call(("127.0.0.1", listener.port), secret, {"what": "echo", "said": said}) as end:
        end.settimeout(300)
        return json.loads(receive_line(end))


def test_a_caller_with_the_secret_is_answered(listener: Listener) -> None:
    assert asked(listener, [1, "two"]) == [1, "two"]
    with pytest.raises(ValueError, match="no end"):
        asked(listener, 1, b"another")


def test_silent_strangers_keep_no_agent_out(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GREETING_S", 900.0)
    address = ("127.0.0.1", listener.port)
    with ExitStack() as strangers:
        for _ in range(3 * STRANGERS):
            strangers.enter_context(socket.create_connection(address, timeout=5))
        assert asked(listener, "here") == "here"
    assert asked(listener, "still") == "still"


def test_a_connection_that_cannot_be_taken_is_not_the_last(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, the process is out of descriptors."""
    accept, refused = socket.socket.accept, []

    def first_not(self: socket.socket) -> tuple[socket.socket, object]:
        if len(refused) < 2:
            refused.append(1)
            raise OSError(24, "Too many open files")
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", first_not)
    assert asked(listener, 1) == 1  # the listener waits in the real accept()
    assert asked(listener, 2) == 2
    assert len(refused) == 2


def test_a_closed_channel_does_not_answer(listener: Listener) -> None:
    listener.close()
    with pytest.raises(ChannelError):
        asked(listener, 1)
