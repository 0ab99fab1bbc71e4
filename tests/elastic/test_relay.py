"""The loopback port that is kept while the lighthouse moves, with real sockets."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from slurm_hooks.elastic.engines.torchft.relay import Relay, Target
from waiting import wait_until


class Far:
    """A server that answers every line with its own name in front."""

    def __init__(self, name: str) -> None:
        self._name = name.encode()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self._calls: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                call, _ = self._socket.accept()
                self._calls.append(call)
                threading.Thread(target=self._answer, args=(call,), daemon=True).start()

    def _answer(self, call: socket.socket) -> None:
        with suppress(OSError):
            while data := call.recv(1000):
                call.sendall(self._name + data)

    def tell(self, text: bytes) -> None:
        self._calls[-1].sendall(text)

    def stop(self) -> None:
        """Close the listener first: connections that it accepts at the last moment are
        closed too.
        """
        _close(self._socket)
        self._thread.join(5)
        for call in self._calls:
            _close(call)


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


class Scene:
    def __init__(self) -> None:
        self.refused: list[int] = []
        self.relay = Relay(self.refused.append)
        self.far = [Far("a"), Far("b")]

    def point(self, at: int) -> None:
        self.relay.point_at(Target(at + 1, "127.0.0.1", self.far[at].port))

    def call(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.relay.port), timeout=5)

    def stop(self) -> None:
        self.relay.stop()
        for far in self.far:
            far.stop()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.stop()


def ask(call: socket.socket, word: bytes = b"x") -> bytes:
    call.sendall(word)
    return call.recv(1000)


def is_ended(call: socket.socket) -> bool:
    try:
        return call.recv(10) == b""
    except ConnectionResetError:
        return True


def test_passes_on_both_ways(scene: Scene) -> None:
    scene.point(0)
    with scene.call() as call:
        assert ask(call) == b"ax"
        assert ask(call, b"yy") == b"ayy"


def test_a_caller_before_the_first_lighthouse_waits(scene: Scene) -> None:
    with scene.call() as call:
        call.sendall(b"early")
        time.sleep(0.2)
        scene.point(1)
        assert call.recv(100) == b"bearly"


def test_after_a_move_new_connections_reach_it_and_old_connections_end_with_their_lighthouse(
    scene: Scene,
) -> None:
    scene.point(0)
    with scene.call() as call:
        assert ask(call) == b"ax"
        scene.point(1)
        assert ask(call) == b"ax"
        with scene.call() as another:
            assert ask(another) == b"bx"
        scene.far[0].stop()
        assert is_ended(call)
    assert scene.refused == []  # only its present place matters


def test_an_abrupt_move_ends_old_connections(scene: Scene) -> None:
    scene.point(0)
    with scene.call() as call:
        assert ask(call) == b"ax"
        scene.relay.point_at(Target(2, "127.0.0.1", scene.far[1].port), abruptly=True)
        assert is_ended(call)
    with scene.call() as call:
        assert ask(call) == b"bx"


def test_a_hushed_relay_passes_answers_but_no_questions(scene: Scene) -> None:
    scene.point(0)
    with scene.call() as call:
        assert ask(call) == b"ax"
        scene.relay.silence()
        scene.far[0].tell(b"late answer")
        assert call.recv(100) == b"late answer"
        call.settimeout(0.3)
        with pytest.raises(socket.timeout):  # TimeoutError from Python 3.10 on
            ask(call)
    with scene.call() as call:
        call.settimeout(0.3)
        with pytest.raises(socket.timeout):  # TimeoutError from Python 3.10 on
            ask(call)


def test_pointing_at_the_same_lighthouse_again_has_no_effect(scene: Scene) -> None:
    scene.point(0)
    with scene.call() as call:
        assert ask(call) == b"ax"
        scene.point(0)
        time.sleep(0.1)
        assert ask(call) == b"ax"


def test_a_dead_lighthouse_is_reported_at_once(scene: Scene) -> None:
    scene.point(0)
    with scene.call() as call:
        assert ask(call) == b"ax"
        scene.far[0].stop()
        assert is_ended(call)
    wait_until(lambda: scene.refused)
    assert set(scene.refused) == {1}


def test_a_caller_that_hangs_up_does_not_blame_the_lighthouse(scene: Scene) -> None:
    scene.point(0)
    with scene.call() as call:
        assert ask(call) == b"ax"
    time.sleep(0.3)
    assert scene.refused == []


def test_stopping_twice_is_no_harm(scene: Scene) -> None:
    scene.relay.stop()
    scene.relay.stop()
    scene.relay.point_at(None)


def test_stopping_right_after_the_start_ends_the_thread_and_closes_the_socket() -> None:
    for _ in range(50):
        relay = Relay(lambda term: None)
        relay.stop()
        assert not relay._thread.is_alive()
        assert relay._socket.fileno() == -1
    gc.collect()  # a socket that was left open is a warning of this test
