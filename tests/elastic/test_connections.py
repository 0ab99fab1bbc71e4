"""Agents at rest with real sockets and files: who tells whom, and what it costs the file system."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import waiting
from slurm_hooks.elastic.liveness import heartbeat as heartbeat_module
from slurm_hooks.elastic.liveness.connections import Connections
from slurm_hooks.elastic.liveness.heartbeat import Heartbeat
from slurm_hooks.elastic.liveness.probe import ALIVE, NEWS, Answer, ProbeListener, probe
from slurm_hooks.elastic.rendezvous.directory import SharedDirectory
from slurm_hooks.elastic.rendezvous.rounds import Limits, form
from slurm_hooks.elastic.rendezvous.state import Member, State, find, join
from slurm_hooks.elastic.signals import SignalListener

A, B = "a" * 16, "b" * 16
BEAT_S = 0.2
KEEP_ALIVE_S = 1.5


class Agent:
    def __init__(self, path: Path, number: int) -> None:
        self.directory = SharedDirectory(path, "7")
        self.directory.open()
        token = f"{number:016x}"
        self.heartbeat = Heartbeat(self.directory, token, BEAT_S, KEEP_ALIVE_S)
        self.me = Member(
            token, number, 0, "1.0", "127.0.0.1", probe_port=self.heartbeat.listener.port
        )
        self.signals = SignalListener()

    def enter(self) -> None:
        self.heartbeat.start(self.signals)
        self.directory.update(lambda s: join(s, self.me))


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Callable[[int], list[Agent]]]:
    agents: list[Agent] = []

    def make(count: int) -> list[Agent]:
        made = [Agent(tmp_path, len(agents) + n) for n in range(count)]
        agents.extend(made)
        for agent in made:
            agent.enter()
        return made

    yield make
    for agent in agents:
        agent.heartbeat.stop(agent.signals)


def wait_until(is_so: Callable[[], object]) -> float:
    """The seconds that it took."""
    began = time.monotonic()
    waiting.wait_until(is_so, 10, every_s=0.01)
    return time.monotonic() - began


def are_joined_up(agents: list[Agent]) -> bool:
    return all(a.directory.read_interval.longest_s == heartbeat_module.TOLD_S for a in agents)


def call(listener: ProbeListener, name: str = B) -> Connections:
    connections = Connections(name)
    connections.keep([("127.0.0.1", listener.port, A)])
    listener.answer()
    return connections


def test_who_stays_on_the_line_is_known_and_hears_signs_of_life() -> None:
    listener = ProbeListener(A)
    connections = call(listener)
    assert listener.listeners == {B}
    assert connections.listen() == (frozenset(), False)
    before = connections.heard(A)
    listener.tell(ALIVE)
    assert connections.listen() == (frozenset(), False)
    assert before is not None
    assert connections.heard(A) == before + 1
    assert connections.heard("c" * 16) is None
    connections.close()
    listener.answer()
    assert listener.listeners == frozenset()
    listener.close()


def test_news_goes_both_ways_and_knocks_are_none() -> None:
    listener = ProbeListener(A)
    connections = call(listener)
    assert not listener.answer()
    connections.tell()
    assert listener.answer()
    assert not listener.answer()
    listener.tell(NEWS)
    assert connections.listen() == (frozenset(), True)
    assert connections.listen() == (frozenset(), False)
    with Answering(listener) as news:
        assert probe("127.0.0.1", listener.port, A) is Answer.ALIVE
    assert not any(news)
    connections.close()
    listener.close()


class Answering:
    """A door that answers meanwhile."""

    def __init__(self, listener: ProbeListener) -> None:
        self._listener, self._is_over, self._news = listener, False, [False]

    def __enter__(self) -> list[bool]:
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        return self._news

    def _work(self) -> None:
        while not self._is_over:
            self._news.append(self._listener.answer())

    def __exit__(self, *args: object) -> None:
        self._is_over = True
        self._thread.join()


def test_descriptors_above_1023_are_no_matter() -> None:
    """select() ends a thread with ValueError there: nobody beat any more, and lived on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2000:
        pytest.skip("the limit of open files cannot be raised")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        listener = ProbeListener(A)
        assert listener.filenos()[0] > 1023
        connections = call(listener)
        assert min(connections.filenos()) > 1023
        connections.tell()
        assert listener.answer()
        listener.close()
        assert connections.listen()[0] == {A}
        connections.close()
    finally:
        for handle in held:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_heart_beats_on_above_1023(crowd: Callable[[int], list[Agent]]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2000:
        pytest.skip("the limit of open files cannot be raised")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        agents = crowd(2)
        wait_until(lambda: are_joined_up(agents))
        before = agents[0].heartbeat._connections.heard(agents[1].me.token)
        wait_until(lambda: agents[0].heartbeat._connections.heard(agents[1].me.token) != before)
    finally:
        for handle in held:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_news_is_known_everywhere_at_once(crowd: Callable[[int], list[Agent]]) -> None:
    """Though everybody looks but once in five seconds by himself."""
    agents = crowd(12)
    wait_until(lambda: are_joined_up(agents))
    time.sleep(3.0)  # nothing happens: long pauses between two looks
    for number, writer in enumerate(agents[:: len(agents) // 3], 1):
        after = writer.directory.update(lambda s: replace(s, rounds=s.rounds + 1))
        took_s = wait_until(lambda r=after.revision: knows(agents, r))  # type: ignore[misc]
        assert took_s < 1.0, number
        time.sleep(0.3)


def knows(agents: list[Agent], revision: int) -> bool:
    return all(a.directory.read().revision >= revision for a in agents)


def test_a_newcomer_is_seen_at_once_by_one_who_is_alone(
    crowd: Callable[[int], list[Agent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat_module, "UNTOLD_S", 60.0)
    (alone,) = crowd(1)
    wait_until(lambda: alone.directory.read_interval.longest_s == 60.0)
    time.sleep(1.0)
    crowd(1)
    assert wait_until(lambda: len(alone.directory.read().members) == 2) < 1.0


def test_hearts_are_files_only_for_those_who_are_not_on_the_line(
    crowd: Callable[[int], list[Agent]], tmp_path: Path
) -> None:
    agents = crowd(3)
    wait_until(lambda: are_joined_up(agents))
    files = [tmp_path / "beats" / a.me.token for a in agents]
    before = [f.read_text() for f in files]
    time.sleep(5 * BEAT_S)
    assert [f.read_text() for f in files] == before
    unheard = Member(f"{9:016x}", 9, 0, "1.0", "127.0.0.1")  # cannot call: it has no door even
    agents[0].directory.update(lambda s: join(s, unheard))
    wait_until(lambda: files[2].read_text() != before[2])  # its predecessor


def test_who_hangs_is_kept_and_whose_host_is_gone_is_not(
    crowd: Callable[[int], list[Agent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that vanishes closes no connection: the line stays, and falls silent."""
    (agent,) = crowd(1)
    silent = socket.create_server(("127.0.0.1", 0))
    peer = Member(f"{7:016x}", 7, 0, "1.0", "127.0.0.1", probe_port=silent.getsockname()[1])

    def enter(state: State) -> State:
        return form(join(state, peer), Limits(1, 4), "h", 1, 1000)

    agent.directory.update(enter)
    wait_until(agent.heartbeat._connections.filenos)
    time.sleep(2 * KEEP_ALIVE_S)
    assert find(agent.directory.look(), peer.token) is not None  # it takes calls: it hangs
    monkeypatch.setattr(
        heartbeat_module,
        "probe_all",
        lambda addresses: {token: Answer.SILENT for _, _, token in addresses},
    )
    assert wait_until(lambda: find(agent.directory.read(), peer.token) is None) < KEEP_ALIVE_S
    silent.close()


def test_whose_host_vanishes_is_given_up_in_time(
    crowd: Callable[[int], list[Agent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = crowd(3)
    wait_until(lambda: are_joined_up(agents))
    gone = agents[1]
    monkeypatch.setattr(
        heartbeat_module,
        "probe_all",
        lambda addresses: {
            token: Answer.SILENT if token == gone.me.token else Answer.ALIVE
            for _, _, token in addresses
        },
    )
    monkeypatch.setattr(gone.heartbeat.listener, "tell", lambda word: None)
    monkeypatch.setattr(gone.heartbeat, "_spread", lambda state: None)
    took_s = wait_until(lambda: find(agents[0].directory.read(), gone.me.token) is None)
    assert KEEP_ALIVE_S - 2 * BEAT_S < took_s < KEEP_ALIVE_S + 5 * BEAT_S
