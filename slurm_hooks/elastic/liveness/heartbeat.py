"""The heart of one agent: a thread that beats, watches others, passes news on, and says
good-bye when the agent is cut off. A thread, because torchrun's main thread may stand for half a
minute while it stops workers, and that is no death.

All of it goes through the lines between agents where there are any; the shared directory is for
those that cannot be called.
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
from slurm_hooks.elastic.liveness.probe import (
    ALIVE,
    NEWS,
    SUSPECT_BEATS,
    Answer,
    ProbeListener,
    is_dead,
    probe_all,
)
from slurm_hooks.elastic.liveness.watch import Watch, watched, watchers
from slurm_hooks.elastic.polling import readable
from slurm_hooks.elastic.rendezvous.directory import DirectoryError, SharedDirectory
from slurm_hooks.elastic.rendezvous.rounds import pending
from slurm_hooks.elastic.rendezvous.state import Phase, State, depart, expire
from slurm_hooks.elastic.signals import SignalListener

FAREWELL_S = 3.0
LOOKS_S = 0.05  # between two looks for news, however many tell of it
NUDGE_S = 0.1
TOLD_S = 5.0  # one looks for news so often where others would tell of it
UNTOLD_S = 1.0
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
        self.listener = ProbeListener(token)
        self._connections = Connections(token)
        self._wake_write, self._wake_read = socket.socketpair()
        for end in (self._wake_write, self._wake_read):
            end.setblocking(False)
        self._absence = Absence(str(directory.path))
        self._told = 0  # the revision that others know of from here
        self._look_at = self._nudge_at = NEVER
        self._looked_at = -NEVER
        self._count = 0
        self._refused: frozenset[str] = frozenset()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def start(self, signals: SignalListener) -> None:
        """Beat once, then go on in the background. Raises DirectoryError."""
        if self._thread is not None:
            return
        self._directory.write_beat(self._token, self._count)
        self._directory.on_news = self._hear_of_own
        self._thread = threading.Thread(
            target=self._run, args=(signals,), name="malleable-heartbeat", daemon=True
        )
        self._thread.start()
        atexit.register(self._finish, signals)

    def stop(self, signals: SignalListener) -> None:
        """Beat no more."""
        self._is_stopped = True
        signals.wake()
        if self._thread is not None:
            self._thread.join(FAREWELL_S)
        self._directory.remove_beat(self._token)
        if self._thread is None or not self._thread.is_alive():
            self.listener.close()
            self._connections.close()
            self._directory.on_news = lambda: None
            self._wake_write.close()
            self._wake_read.close()

    def _finish(self, signals: SignalListener) -> None:
        if signals.is_terminated and self._thread is not None:
            self._thread.join(FAREWELL_S)

    def _hear_of_own(self) -> None:
        """This agent has written; in any thread."""
        with suppress(OSError):  # full: the thread is awake already
            self._wake_write.send(NEWS)

    def _run(self, signals: SignalListener) -> None:
        next_beat = time.monotonic()
        while not self._is_stopped:
            if signals.is_terminated:
                self._say_goodbye()
                return
            now = time.monotonic()
            if now >= next_beat:
                next_beat = now + self._beat_s
                self._beat()
            self._do_what_is_due(now)
            until = min(next_beat, self._look_at, self._nudge_at)
            self._listen(signals, max(0.0, until - time.monotonic()))

    def _listen(self, signals: SignalListener, pause_s: float) -> None:
        ears = [signals.wake_read, self._wake_read.fileno()]
        woken = readable([*ears, *self.listener.filenos(), *self._connections.filenos()], pause_s)
        with suppress(BlockingIOError):  # another heart of this agent has read it
            if signals.wake_read in woken:
                os.read(signals.wake_read, 64)
        now = time.monotonic()
        with suppress(BlockingIOError):
            if self._wake_read.recv(64):
                self._look_at, self._nudge_at = now, now + NUDGE_S
        is_news = self.listener.answer()
        broken, is_more = self._connections.listen()
        if is_news or is_more:
            self._look_at = min(self._look_at, max(now, self._looked_at + LOOKS_S))
        self._look_after(broken)

    def _do_what_is_due(self, now: float) -> None:
        with suppress(DirectoryError):  # the next beat looks as well
            if now >= self._nudge_at:
                self._nudge_at = NEVER
                self._directory.nudge()
            if now >= self._look_at:
                self._look_at, self._looked_at = NEVER, now
                self._spread(self._directory.look())

    def _spread(self, state: State) -> None:
        """Tell the others that there is something to see, if it is new."""
        if state.revision <= self._told:
            return
        self._told = state.revision
        self._connections.tell()
        self.listener.tell(NEWS)
        self._connections.keep(_addresses(state, frozenset(watched(state, self._token))))

    def _look_after(self, tokens: frozenset[str]) -> None:
        """Their lines broke: who refuses a knock as well, and has not said good-bye, is dead."""
        if not tokens:
            return
        with suppress(DirectoryError):  # failing that, the heart beats will tell
            state = self._directory.read()
            answers = probe_all(_addresses(state, tokens))
            dead = frozenset(t for t, answer in answers.items() if answer is Answer.GONE)
            if dead:
                self._remove_dead(dead)

    def _beat(self) -> None:
        self._count += 1
        self.listener.tell(ALIVE)
        try:
            state = self._directory.read()
            self._spread(state)
            self._absence.look(time.monotonic(), state, self._token)
            others = watched(state, self._token)
            self._connections.keep(_addresses(state, frozenset(others)))
            is_heard = watchers(state, self._token) <= self.listener.listeners
            if not is_heard:
                self._directory.write_beat(self._token, self._count)
            still = self._watch.observe(time.monotonic(), {t: self._sign(t) for t in others})
            is_told = is_heard and bool(others) and len(self._connections.filenos()) == len(others)
            self._directory.read_interval.longest_s = TOLD_S if is_told else UNTOLD_S
            dead = self._dead(state, still)
            if dead:
                self._remove_dead(dead)
        except DirectoryError:
            self._watch.reset()  # what cannot be read is not dead

    def _sign(self, token: str) -> int | None:
        """What changes while `token` lives."""
        heard = self._connections.heard(token)
        return self._directory.read_beat(token) if heard is None else heard

    def _dead(self, state: State, still: dict[str, float]) -> frozenset[str]:
        suspects = {t: s for t, s in still.items() if s >= SUSPECT_BEATS * self._beat_s}
        if not suspects:
            return frozenset()
        return frozenset(
            token
            for token, answer in probe_all(_addresses(state, frozenset(suspects))).items()
            if is_dead(suspects[token], answer, self._beat_s, self._keep_alive_s)
        )

    def find_dead(self, state: State) -> None:
        """While waiting for others: knock at those who have not come back, and give up
        whoever refused last time as well. A dead process is found in half a second so; a
        dead host takes as long as ever. Everybody who waits does so, not only where the
        workers failed: each knocks at few, so whose failed may not know the dead one's
        door. Does not raise."""
        mine = frozenset(watched(state, self._token))
        addresses = [
            (m.host, m.probe_port, m.token)
            for m in pending(state)
            if m.token in mine and m.probe_port
        ]
        answers = probe_all(addresses) if addresses else {}
        refused = frozenset(t for t, answer in answers.items() if answer is Answer.GONE)
        dead, self._refused = refused & self._refused, refused
        if dead:
            with suppress(DirectoryError):  # the heart beats will tell as well
                self._remove_dead(dead)

    def _remove_dead(self, tokens: frozenset[str]) -> None:
        self._directory.update(lambda s: expire(s, tokens, int(time.time())))
        for token in tokens:
            self._directory.remove_beat(token)

    def _say_goodbye(self) -> None:
        with suppress(DirectoryError):  # failing that, the others will notice the silence
            self._directory.update(
                lambda s: depart(s, self._token, int(time.time()), planned=False), FAREWELL_S
            )
        self._directory.remove_beat(self._token)


def _addresses(state: State, tokens: frozenset[str]) -> list[tuple[str, int, str]]:
    """Where those of them are to be found that still take part."""
    taking_part = (m for m in state.members if m.token in tokens and m.phase is not Phase.DONE)
    return [(m.host, m.probe_port, m.token) for m in taking_part if m.probe_port]
