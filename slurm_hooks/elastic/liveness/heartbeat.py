"""The heartbeat of an agent: a thread that beats, watches others, passes on news, and deregisters
the agent when SIGTERM ends it.

torchrun's main thread may block for half a minute while it stops workers, which is no failure. So
this is a separate thread. It uses the connections between agents where they exist, and the shared
directory otherwise.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
import time
from contextlib import suppress

from slurm_hooks.elastic.liveness.absent import Absence
from slurm_hooks.elastic.liveness.connections import Connections
from slurm_hooks.elastic.liveness.ping import (
    ALIVE,
    NEWS,
    SUSPECT_BEATS,
    Answer,
    PingListener,
    is_dead,
    ping_all,
)
from slurm_hooks.elastic.liveness.watch import Watch, watched, watchers
from slurm_hooks.elastic.log import debug, endured, suppressed
from slurm_hooks.elastic.polling import readable
from slurm_hooks.elastic.rendezvous.directory import DirectoryError, SharedDirectory
from slurm_hooks.elastic.rendezvous.rounds import pending
from slurm_hooks.elastic.rendezvous.state import Phase, State, depart, expire
from slurm_hooks.elastic.signals import SignalListener

FAREWELL_S = 3.0
FETCH_S = 0.05  # between two reads for news, however many announce it
NUDGE_S = 0.1
LAST_S = 1.0  # for the removal of its own heartbeat
LONGEST_S = 5.0  # between two reads, since others announce news
NEVER = float("inf")


class Heartbeat:
    """Beats for `token` every `beat_s` until stopped or terminated."""

    def __init__(
        self, directory: SharedDirectory, token: str, beat_s: float, keep_alive_s: float
    ) -> None:
        self._directory = directory
        self._token = token
        self._beat_s = beat_s
        self._keep_alive_s = keep_alive_s
        self._watch = Watch(keep_alive_s)
        self.listener = PingListener(token)
        self._connections = Connections(token)
        self._wake_write, self._wake_read = socket.socketpair()
        for end in (self._wake_write, self._wake_read):
            end.setblocking(False)
        self._absence = Absence(str(directory.path))
        self._announced = 0  # the last revision that others were notified of from here
        self._beat_at = -NEVER
        self._fetch_at = self._nudge_at = NEVER
        self._fetched_at = -NEVER
        self._count = 0
        self._refused: frozenset[str] = frozenset()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def start(self, signals: SignalListener) -> None:
        """Beat once, then go on in the background. Raises DirectoryError."""
        if self._thread is not None:
            return
        self._directory.write_beat(self._token, self._count)
        self._directory.on_written = self._on_own_write
        self._directory.read_interval.longest_s = LONGEST_S
        thread = threading.Thread(
            target=self._run, args=(signals,), name="malleable-heartbeat", daemon=True
        )
        thread.start()
        self._thread = thread
        atexit.register(self._finish, signals)

    def stop(self, signals: SignalListener) -> None:
        """Beat no more."""
        self._is_stopped = True
        signals.wake()
        if self._thread is not None:
            self._thread.join(FAREWELL_S)
        self._directory.remove_beats([self._token], LAST_S)
        if self._thread is None or not self._thread.is_alive():
            self.listener.close()
            self._connections.close()
            self._directory.on_written = lambda: None
            self._wake_write.close()
            self._wake_read.close()

    def _finish(self, signals: SignalListener) -> None:
        if signals.is_terminated and self._thread is not None:
            self._thread.join(FAREWELL_S)

    def _on_own_write(self) -> None:
        """This agent has written the state. In any thread."""
        with suppress(OSError):  # full: the thread is awake already
            self._wake_write.send(NEWS)

    def _run(self, signals: SignalListener) -> None:
        is_endured = endured("the heartbeat of this fragment")
        while not self._is_stopped:
            with is_endured:
                if signals.is_terminated:
                    self._depart()
                    return
                self._work(signals)
                continue
            time.sleep(self._beat_s)  # an action failed, and may fail again

    def _work(self, signals: SignalListener) -> None:
        now = time.monotonic()
        if now >= self._beat_at:
            self._beat_at = now + self._beat_s
            self._beat()
        self._do_what_is_due(now)
        until = min(self._beat_at, self._fetch_at, self._nudge_at)
        self._receive(signals, max(0.0, until - time.monotonic()))

    def _receive(self, signals: SignalListener, pause_s: float) -> None:
        own = [signals.wake_read, self._wake_read.fileno()]
        woken = readable([*own, *self.listener.filenos(), *self._connections.filenos()], pause_s)
        with suppress(BlockingIOError):  # another heartbeat of this agent has read it
            if signals.wake_read in woken:
                os.read(signals.wake_read, 64)
        now = time.monotonic()
        with suppress(BlockingIOError):
            if self._wake_read.recv(64):
                self._fetch_at, self._nudge_at = now, now + NUDGE_S
        is_news = self.listener.answer()
        broken, is_more = self._connections.receive()
        if is_news or is_more:
            self._fetch_at = min(self._fetch_at, max(now, self._fetched_at + FETCH_S))
        self._check_broken(broken)

    def _do_what_is_due(self, now: float) -> None:
        with suppressed(DirectoryError, doing="reading the news"):  # the next beat reads as well
            if now >= self._nudge_at:
                self._nudge_at = NEVER
                self._directory.nudge()
            if now >= self._fetch_at:
                self._fetch_at, self._fetched_at = NEVER, now
                self._announce(self._directory.read_fresh())

    def _announce(self, state: State) -> None:
        """Notify the others of the state, if it is new."""
        if state.revision <= self._announced:
            return
        self._announced = state.revision
        self._connections.send_news()
        self.listener.send(NEWS)
        self._connections.keep(_addresses(state, frozenset(watched(state, self._token))))

    def _check_broken(self, tokens: frozenset[str]) -> None:
        """Connections broke. Agents that also refuse a ping and are still listed are dead."""
        if not tokens:
            return
        # if this fails, their heartbeats will show it
        with suppressed(DirectoryError, doing="checking agents whose connection broke"):
            state = self._directory.read()
            answers = ping_all(_addresses(state, tokens))
            dead = frozenset(t for t, answer in answers.items() if answer is Answer.GONE)
            if dead:
                self._remove_dead(dead)

    def _beat(self) -> None:
        self._count += 1
        self.listener.send(ALIVE)
        try:
            state = self._directory.read()
            self._announce(state)
            self._absence.look(time.monotonic(), state, self._token)
            others = watched(state, self._token)
            self._connections.keep(_addresses(state, frozenset(others)))
            if not self._is_watched(watchers(state, self._token)):
                self._directory.write_beat_aside(self._token, self._count)
            silent = self._watch.observe(time.monotonic(), {t: self._sign(t) for t in others})
            dead = self._dead(state, silent)
            if dead:
                self._remove_dead(dead)
        except DirectoryError as error:
            debug("watching other agents", error)
            self._watch.reset()  # an unreadable directory proves no death

    def _is_watched(self, names: frozenset[str]) -> bool:
        """Tell whether all of these are connected, so that no heartbeat file is needed."""
        self.listener.expect(names)
        return names <= self.listener.watchers

    def _sign(self, token: str) -> int | None:
        """Return a number that changes while `token` is alive."""
        signs = self._connections.signs(token)
        return self._directory.read_beat(token) if signs is None else signs

    def _dead(self, state: State, silent: dict[str, float]) -> frozenset[str]:
        suspects = {t: s for t, s in silent.items() if s >= SUSPECT_BEATS * self._beat_s}
        if not suspects:
            return frozenset()
        return frozenset(
            token
            for token, answer in ping_all(_addresses(state, frozenset(suspects))).items()
            if is_dead(suspects[token], answer, self._beat_s, self._keep_alive_s)
        )

    def find_dead(self, state: State) -> None:
        """While this agent waits for others, ping the agents that have not come back. Does not
        raise.

        It removes an agent that refuses two pings in a row. So it finds a dead process in half a
        second. A dead host takes as long as elsewhere. Every waiting agent does so, not only agents
        whose workers failed: each pings only a few, which may not include the dead agent.
        """
        mine = frozenset(watched(state, self._token))
        addresses = [
            (m.host, m.ping_port, m.token)
            for m in pending(state)
            if m.token in mine and m.ping_port
        ]
        answers = ping_all(addresses) if addresses else {}
        refused = frozenset(t for t, answer in answers.items() if answer is Answer.GONE)
        dead, self._refused = refused & self._refused, refused
        if dead:
            # if this fails, their heartbeats will show it
            with suppressed(DirectoryError, doing="removing agents that refuse pings"):
                self._remove_dead(dead)

    def _remove_dead(self, tokens: frozenset[str]) -> None:
        self._directory.update(lambda s: expire(s, tokens, int(time.time())))
        self._directory.remove_beats(tokens)

    def _depart(self) -> None:
        # if this fails, the others will notice the silence
        with suppressed(DirectoryError, doing="leaving the list of members after SIGTERM"):
            self._directory.update(
                lambda s: depart(s, self._token, int(time.time()), planned=False), FAREWELL_S
            )
        self._directory.remove_beats([self._token], LAST_S)


def _addresses(state: State, tokens: frozenset[str]) -> list[tuple[str, int, str]]:
    """Return the addresses of the agents that still take part."""
    taking_part = (m for m in state.members if m.token in tokens and m.phase is not Phase.DONE)
    return [(m.host, m.ping_port, m.token) for m in taking_part if m.ping_port]
