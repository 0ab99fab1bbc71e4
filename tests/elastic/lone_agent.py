"""A single agent's session on a directory in memory, and the events that may happen to it.

The test decides the reports of its workers and the end of its lease. Only a test moves its clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_hooks.elastic.agent import evidence, forming, membership, session
from slurm_hooks.elastic.agent.actions import Enter, Form, Wait
from slurm_hooks.elastic.agent.forewarning import Forewarning
from slurm_hooks.elastic.agent.membership import Membership
from slurm_hooks.elastic.agent.session import Session
from slurm_hooks.elastic.agent.settling import Training
from slurm_hooks.elastic.agent.sight import Sight
from slurm_hooks.elastic.batch.lease import Lease
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.liveness.heartbeat import Heartbeat
from slurm_hooks.elastic.mailbox import Mailbox, PlannedChange
from slurm_hooks.elastic.rendezvous import patient_directory
from slurm_hooks.elastic.rendezvous.directory import DirectoryError, SharedDirectory
from slurm_hooks.elastic.rendezvous.rounds import form
from slurm_hooks.elastic.rendezvous.state import (
    Member,
    Round,
    State,
    Stop,
    announce_leave,
    come_back,
    expire,
    fail,
    find,
    join,
)
from slurm_hooks.elastic.signals import SignalListener
from slurm_hooks.protocol.comment import Standing

from .test_seeking import options

OPTIONS = options(Path("/nowhere"))  # seconds: settle 1, leave 1, boundary 1, poll 0.2
ME = Member("a" * 16, 1, 0, "1.0", "n1", ends=9000)
OTHER = replace(ME, token="b" * 16, fragment=2)
NEWCOMER = replace(ME, token="c" * 16, fragment=3)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def sleep(self, pause_s: float) -> None:
        self.now += pause_s


class MemoryDirectory(SharedDirectory):
    def __init__(self) -> None:
        self.state, self.stage = State(run="7"), 1
        self.is_in_trouble, self.reads = False, 0
        self.words: dict[str, tuple[str, ...]] = {}

    def read(self) -> State:
        self.reads += 1
        if self.is_in_trouble:
            raise DirectoryError("no such device")
        return self.state

    def update(self, change: Callable[[State], State], timeout_s: float = 0.0) -> State:
        self.state = change(self.read())
        return self.state

    def read_stage(self, position: str, incarnation: str) -> int:
        return self.stage

    def write_stage(self, position: str, incarnation: str, stage: int) -> None:
        self.read()
        self.stage = stage

    def write_words(self, digest: str, words: Sequence[str], token: str) -> None:
        self.words[digest] = tuple(words)

    def read_words(self, digest: str) -> tuple[str, ...]:
        return self.words.get(digest, ())

    def log_round(self, line: str) -> None:
        pass


class QuietHeartbeat(Heartbeat):
    def __init__(self) -> None:
        self.listener: Any = SimpleNamespace(port=0)
        self.is_beating = False

    def start(self, signals: SignalListener) -> None:
        self.is_beating = True

    def stop(self, signals: SignalListener) -> None:
        self.is_beating = False

    def find_dead(self, state: State) -> None:
        pass


class KnownLease(Lease):
    def __init__(self) -> None:
        self.ends, self.has_ended, self.ends_soon, self.questions = ME.ends, False, False, 0

    def is_over(self, now: float, together: bool = False) -> bool:
        self.questions += 1
        return self.has_ended or (together and self.ends_soon)


class Reports(OwnElement):
    def __init__(self) -> None:
        self.standings: list[Standing] = []
        self.has_other_run = False
        self.trained = 0

    def report(self, standing: Standing) -> None:
        self.standings.append(standing)

    def report_apart(self) -> None:
        self.standings.append(Standing.APART)

    def is_outlived(self) -> bool:
        return self.has_other_run

    def report_trained(self) -> None:
        self.trained += 1


class Workers(Mailbox):
    def __init__(self) -> None:
        self.posted: list[PlannedChange] = []
        self.is_on_the_way = self.have_trained = False

    def post(self, change: PlannedChange) -> None:
        self.posted.append(change)

    def is_awaited(self) -> bool:
        return self.is_on_the_way

    def is_listened_to(self) -> bool:
        return True

    def has_ended(self) -> bool:
        return self.have_trained

    def samples(self) -> int:
        return 0

    def withdraw(self) -> None:
        self.posted.clear()

    clear = withdraw


class SeenTraining(Sight):
    """The workers make a step in the tenth part of a second, unless a test says otherwise."""

    seen = Training(60.0, start_s=0.3, step_s=0.1)

    def __init__(self) -> None:
        pass

    def begin_round(self, now: float, round_: Round, is_first: bool) -> None:
        pass

    def look(self, now: float, rank: int) -> None:
        pass

    def training(self, now: float) -> Training:
        return self.seen

    def end(self) -> None:
        pass


class Agent:
    """A session, and all that it stands on."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.directory, self.heartbeat = clock, MemoryDirectory(), QuietHeartbeat()
        self.lease, self.reports, self.workers = KnownLease(), Reports(), Workers()
        self.signals = SignalListener()
        self.membership = Membership(ME, self.directory, self.heartbeat, self.signals)
        forewarning = Forewarning(self.workers, OPTIONS.boundary_s)
        self.sight = SeenTraining()
        self.session = Session(
            OPTIONS,
            self.membership,
            self.lease,
            self.signals,
            forewarning,
            self.reports,
            self.sight,
        )

    def mine(self) -> Member:
        """This agent as the others know it."""
        member = find(self.directory.state, ME.token)
        assert member is not None
        return member

    def enter(self) -> None:
        """Enter the round that others form at this moment."""
        assert isinstance(self.session.next_action(), (Form, Wait))
        self.directory.update(lambda s: form(s, OPTIONS.limits, "n1", 1, int(self.clock.now)))
        assert isinstance(self.session.next_action(), Enter)

    def train(self) -> None:
        """Be in a round with OTHER."""
        self.directory.update(lambda s: join(s, OTHER))
        self.enter()

    def look(self, after_s: float = 1.0) -> Stop:
        self.clock.now += after_s
        return self.session.look()


def alone(monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent that has not joined yet. During the test its session and their parts share
    its clock.
    """
    clock = Clock()
    for module in (evidence, forming, membership, session, patient_directory):
        monkeypatch.setattr(module, "time", clock)
    return Agent(clock)


def is_told_to_go(agent: Agent) -> None:
    agent.signals.has_notice = True


def is_at_its_end(agent: Agent) -> None:
    agent.lease.has_ended = True


def other_has_stopped(agent: Agent) -> None:
    agent.directory.update(lambda s: come_back(s, OTHER))


def other_leaves(agent: Agent) -> None:
    agent.directory.update(lambda s: announce_leave(s, OTHER.token))


def newcomer_is_lost(agent: Agent) -> None:
    agent.directory.update(lambda s: expire(s, frozenset({NEWCOMER.token}), int(agent.clock.now)))


def other_is_lost(agent: Agent) -> None:
    agent.directory.update(lambda s: expire(s, frozenset({OTHER.token}), int(agent.clock.now)))


def training_has_failed(agent: Agent) -> None:
    agent.directory.update(lambda s: fail(s, int(agent.clock.now)))


def newcomer_waits(agent: Agent) -> None:
    agent.directory.update(lambda s: join(s, NEWCOMER))


def directory_fails(agent: Agent) -> None:
    agent.directory.is_in_trouble = True


def nothing(agent: Agent) -> None:
    pass
