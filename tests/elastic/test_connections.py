"""Agents at rest with real sockets and files: the notifications, and the load on the files."""

from __future__ import annotations

import errno
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import waiting
from slurm_hooks.elastic.liveness import heartbeat as heartbeat_module
from slurm_hooks.elastic.liveness import ping as ping_module
from slurm_hooks.elastic.liveness.connections import Connections
from slurm_hooks.elastic.liveness.heartbeat import Heartbeat
from slurm_hooks.elastic.liveness.ping import (
    ALIVE,
    NEWS,
    Answer,
    PingListener,
    is_dead,
    ping,
    ping_all,
)
from slurm_hooks.elastic.liveness.watch import watched, watchers
from slurm_hooks.elastic.polling import readable
from slurm_hooks.elastic.rendezvous.directory import SharedDirectory
from slurm_hooks.elastic.rendezvous.rounds import Limits, form
from slurm_hooks.elastic.rendezvous.state import Member, State, find, join
from slurm_hooks.elastic.signals import SignalListener

A, B = "a" * 16, "b" * 16
BEAT_S = 0.2
KEEP_ALIVE_S = 1.5
TOO_LATE_S = 2 * waiting.PATIENCE_S


class Agent:
    def __init__(self, path: Path, number: int) -> None:
        self.directory = SharedDirectory(path, "7")
        self.directory.open()
        token = f"{number:016x}"
        self.heartbeat = Heartbeat(self.directory, token, BEAT_S, KEEP_ALIVE_S)
        self.me = Member(
            token, number, 0, "1.0", "127.0.0.1", ping_port=self.heartbeat.listener.port
        )
        self.signals = SignalListener()

    def enter(self) -> None:
        self.heartbeat.start(self.signals)
        self.directory.update(lambda s: join(s, self.me))


@pytest.fixture
def make_agents(tmp_path: Path) -> Iterator[Callable[[int], list[Agent]]]:
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
    """Wait until the condition holds. Return the seconds that it took."""
    began = time.monotonic()
    waiting.wait_until(is_so, every_s=0.01)
    return time.monotonic() - began


def are_connected(agents: list[Agent]) -> bool:
    """Tell whether each agent is connected to all agents that it watches, and known to them."""
    tokens = {a.me.token for a in agents}
    states = [a.directory.read() for a in agents]
    return all(
        tokens <= {m.token for m in state.members}
        and len(a.heartbeat._connections.filenos()) == len(watched(state, a.me.token))
        and watchers(state, a.me.token) <= a.heartbeat.listener.watchers
        for a, state in zip(agents, states)
    )


def connected_to(listener: PingListener, name: str = B) -> Connections:
    connections = Connections(name)
    connections.keep([("127.0.0.1", listener.port, A)])
    listener.answer()
    return connections


def test_a_watcher_is_known_and_gets_signs_of_life() -> None:
    listener = PingListener(A)
    connections = connected_to(listener)
    assert listener.watchers == {B}
    assert connections.receive() == (frozenset(), False)
    before = connections.signs(A)
    listener.send(ALIVE)
    assert connections.receive() == (frozenset(), False)
    assert before is not None
    assert connections.signs(A) == before + 1
    assert connections.signs("c" * 16) is None
    connections.close()
    listener.answer()
    assert listener.watchers == frozenset()
    listener.close()


def test_news_goes_both_ways_and_a_probe_is_not_news() -> None:
    listener = PingListener(A)
    connections = connected_to(listener)
    assert not listener.answer()
    connections.send_news()
    assert listener.answer()
    assert not listener.answer()
    listener.send(NEWS)
    assert connections.receive() == (frozenset(), True)
    assert connections.receive() == (frozenset(), False)
    with Answering(listener) as news:
        assert ping("127.0.0.1", listener.port, A) is Answer.ALIVE
    assert not any(news)
    connections.close()
    listener.close()


class Answering:
    """A probe listener that answers during the test."""

    def __init__(self, listener: PingListener) -> None:
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


def test_a_heartbeat_goes_on_above_1023(make_agents: Callable[[int], list[Agent]]) -> None:
    """select() raises ValueError there: the heartbeat thread ended and the agent lived on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2000:
        pytest.skip("the limit of open files cannot be raised")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        agents = make_agents(2)
        assert agents[0].heartbeat.listener.filenos()[0] > 1023
        wait_until(lambda: are_connected(agents))
        before = agents[0].heartbeat._connections.signs(agents[1].me.token)
        wait_until(lambda: agents[0].heartbeat._connections.signs(agents[1].me.token) != before)
    finally:
        for handle in held:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_news_is_known_everywhere(
    make_agents: Callable[[int], list[Agent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without news an agent would read only long after this test has given up."""
    monkeypatch.setattr(heartbeat_module, "LONGEST_S", TOO_LATE_S)
    agents = make_agents(12)
    wait_until(lambda: are_connected(agents))
    for writer in agents[:: len(agents) // 3]:
        rest(agents)
        after = writer.directory.update(lambda s: replace(s, rounds=s.rounds + 1))
        wait_until(lambda r=after.revision: knows(agents, r))  # type: ignore[misc]


def rest(agents: list[Agent]) -> None:
    """Let minutes pass without events: long times between two reads."""
    for agent in agents:
        for _ in range(20):
            agent.directory.read_interval.has_read(time.monotonic(), is_news=False)


def knows(agents: list[Agent], revision: int) -> bool:
    return all(a.directory.read().revision >= revision for a in agents)


def test_a_newcomer_is_seen_by_an_agent_that_is_alone(
    make_agents: Callable[[int], list[Agent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat_module, "LONGEST_S", TOO_LATE_S)
    (alone,) = make_agents(1)
    rest([alone])
    make_agents(1)
    wait_until(lambda: len(alone.directory.read().members) == 2)


def test_heartbeats_are_files_only_for_agents_that_are_not_connected(
    make_agents: Callable[[int], list[Agent]], tmp_path: Path
) -> None:
    agents = make_agents(3)
    wait_until(lambda: are_connected(agents))
    files = [tmp_path / "beats" / a.me.token for a in agents]
    before = [f.read_text() for f in files]
    time.sleep(5 * BEAT_S)
    assert [f.read_text() for f in files] == before
    unconnected = Member(
        f"{9:016x}", 9, 0, "1.0", "127.0.0.1"
    )  # cannot connect, and has no probe port
    agents[0].directory.update(lambda s: join(s, unconnected))
    wait_until(lambda: files[2].read_text() != before[2])  # its predecessor


def test_an_agent_that_accepts_no_connection_is_kept_by_its_file(
    make_agents: Callable[[int], list[Agent]],
) -> None:
    """As behind a firewall that allows only outgoing connections: it can still train."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    agents = make_agents(3)
    hidden = Member(f"{7:016x}", 7, 0, "1.0", "127.0.0.1", ping_port=closed)
    agents[0].directory.update(lambda s: join(s, hidden))
    for count in range(20):
        agents[0].directory.write_beat(hidden.token, count)
        time.sleep(BEAT_S)
    assert find(agents[0].directory.read_fresh(), hidden.token)
    wait_until(lambda: find(agents[0].directory.read_fresh(), hidden.token) is None)


def test_an_agent_that_hangs_is_kept_and_an_agent_on_a_lost_host_is_not(
    make_agents: Callable[[int], list[Agent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost host closes no connection. The connection remains, but is silent."""
    (agent,) = make_agents(1)
    silent = socket.create_server(("127.0.0.1", 0))
    peer = Member(f"{7:016x}", 7, 0, "1.0", "127.0.0.1", ping_port=silent.getsockname()[1])
    probed: list[float] = []

    def see_probe(addresses: Iterable[tuple[str, int, str]]) -> dict[str, Answer]:
        probed.append(time.monotonic())
        return ping_all(addresses)

    def is_gone() -> bool:
        return find(agent.directory.read_fresh(), peer.token) is None

    def enter(state: State) -> State:
        return form(join(state, peer), Limits(1, 4), "h", 1, 1000)

    monkeypatch.setattr(heartbeat_module, "ping_all", see_probe)
    agent.directory.update(enter)
    wait_until(agent.heartbeat._connections.filenos)
    late = time.monotonic() + KEEP_ALIVE_S + 2 * BEAT_S
    wait_until(lambda: sum(at > late for at in probed) > 1 or is_gone())
    assert not is_gone()  # it accepts connections: it hangs
    monkeypatch.setattr(
        heartbeat_module,
        "ping_all",
        lambda addresses: {token: Answer.SILENT for _, _, token in addresses},
    )
    wait_until(is_gone)
    silent.close()


def test_an_agent_whose_host_vanishes_is_given_up_in_time(
    make_agents: Callable[[int], list[Agent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = make_agents(3)
    wait_until(lambda: are_connected(agents))
    gone = agents[1]
    monkeypatch.setattr(
        heartbeat_module,
        "ping_all",
        lambda addresses: {
            token: Answer.SILENT if token == gone.me.token else Answer.ALIVE
            for _, _, token in addresses
        },
    )
    monkeypatch.setattr(gone.heartbeat.listener, "send", lambda word: None)
    monkeypatch.setattr(gone.heartbeat, "_announce", lambda state: None)
    began = time.monotonic()
    wait_until(lambda: find(agents[0].directory.read(), gone.me.token) is None)
    assert time.monotonic() - began > KEEP_ALIVE_S / 2  # not because it is late once


def test_a_heartbeat_connects_and_probes_where_no_thread_can_be_started(
    make_agents: Callable[[int], list[Agent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (agent,) = make_agents(1)
    no_more_threads(monkeypatch)
    listener = PingListener(A)
    peer = Member(A, 7, 0, "1.0", "127.0.0.1", ping_port=listener.port)
    agent.directory.update(lambda s: form(join(s, peer), Limits(1, 4), "h", 1, 1000))
    wait_until(agent.heartbeat._connections.filenos)
    listener.close()
    wait_until(lambda: find(agent.directory.read_fresh(), A) is None)


def no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach the limit of processes."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_a_heartbeat_survives_an_unexpected_error_and_logs_it_once(
    make_agents: Callable[[int], list[Agent]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    failures: list[float] = []

    def fail(*_: object) -> bool:
        failures.append(time.monotonic())
        raise ValueError("odd")

    agents = make_agents(2)
    wait_until(lambda: are_connected(agents))
    with monkeypatch.context() as broken:
        broken.setattr(agents[0].heartbeat, "_is_watched", fail)
        wait_until(lambda: len(failures) > 3)
    after = agents[1].directory.update(lambda s: replace(s, rounds=s.rounds + 1)).revision
    wait_until(lambda: knows(agents[:1], after))
    before = agents[1].heartbeat._connections.signs(agents[0].me.token)
    wait_until(lambda: agents[1].heartbeat._connections.signs(agents[0].me.token) != before)
    assert capfd.readouterr().err.count("ValueError: odd") == 1
    assert failures[-1] - failures[0] > BEAT_S  # it does not spin


def test_a_process_without_free_descriptors_takes_no_other_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    listener = PingListener(A)
    monkeypatch.setattr(socket, "socket", refuse)
    answer = ping("127.0.0.1", listener.port, A)
    monkeypatch.undo()
    assert answer is Answer.UNASKED
    assert not is_dead(1e6, answer, BEAT_S, KEEP_ALIVE_S)
    listener.close()


def test_an_agent_that_ends_before_it_accepts_a_ping_is_gone() -> None:
    """Its kernel resets the connections that wait to be accepted."""
    listener = PingListener(A)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(ping, "127.0.0.1", listener.port, A)
        waiting.wait_until(lambda: bool(readable(listener.filenos(), 0)), 60, lambda: "no ping")
        listener.close()
        assert answer.result() is Answer.GONE


def test_an_agent_that_hangs_is_alive_for_all_that_ping_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel accepts the pings of four watchers in a minute, and of waiting agents."""
    monkeypatch.setattr(ping_module, "ANSWER_S", 0.05)
    listener = PingListener(A)
    try:
        for _ in range(20):
            answers = ping_all([("127.0.0.1", listener.port, f"{n:016x}") for n in range(20)])
            assert set(answers.values()) == {Answer.ALIVE}
    finally:
        listener.close()
