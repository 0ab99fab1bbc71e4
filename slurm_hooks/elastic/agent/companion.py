"""What the folder of an engine says of its world: who meets in the rounds of an agent, and what
goes on beside them. Values and protocols only.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Optional, Protocol

from slurm_hooks.elastic.agent.actions import Action
from slurm_hooks.elastic.agent.options import Options, agents
from slurm_hooks.elastic.rendezvous.state import Member, Outcome
from slurm_hooks.elastic.signals import SignalListener


class EngineError(Exception):
    """The engine cannot run here; the message says what to do."""


class Companion(Protocol):
    """One engine's part in an agent. Only `enter` raises."""

    def begin_wait(self) -> None:
        """There are no training processes here, and a round is wanted."""

    def enter(self, ends: int) -> Optional[Action]:
        """Take part, before the first round; what to do instead if that cannot be yet (Wait), or
        there is nothing left to do (Over). `ends` is the end of this lease (epoch seconds, 0:
        unknown). Raises DirectoryError."""

    def take_planned_change(self) -> bool:
        """Whether others came or went as planned, without a new round here, since this was last
        asked."""

    def leave(self) -> None:
        """This fragment goes: hand over what others need. May be called more than once."""

    def succeed(self) -> None:
        """The training processes here have finished."""

    def outcome(self) -> Optional[Outcome]:
        """How the training ended for all, once it has finished here; None until it has."""

    def close(self, is_failure: bool) -> None:
        """The agent ends."""


class Alone:
    """The companion of an engine that needs nothing beside its rounds."""

    def begin_wait(self) -> None:
        """See Companion."""

    def enter(self, ends: int) -> Optional[Action]:
        """See Companion."""
        return None

    def take_planned_change(self) -> bool:
        """See Companion."""
        return False

    def leave(self) -> None:
        """See Companion."""

    def succeed(self) -> None:
        """See Companion."""

    def outcome(self) -> Optional[Outcome]:
        """See Companion."""
        return Outcome.FINISHED

    def close(self, is_failure: bool) -> None:
        """See Companion."""


@dataclass(frozen=True)
class World:
    """Who meets in the rounds of one agent: `wanted` are the fragments of the agents expected at
    the start, empty if nobody knows. Others `keep_state` if they hold what this one loses."""

    options: Options
    wanted: tuple[int, ...]
    companion: Companion
    keep_state: bool = False


@dataclass(frozen=True)
class Facts:
    """What is known of an agent when its world is made: the options of the job, who it is, the
    fragment of every node expected (empty if nobody knows), and the environment that its
    training processes will have."""

    options: Options
    me: Member
    wanted: tuple[int, ...]
    signals: SignalListener
    env: MutableMapping[str, str]


class WorldMaker(Protocol):
    """`make_world` of the module `world` in the folder of an engine."""

    def __call__(self, facts: Facts) -> World:
        """Raises OptionError, DirectoryError, EngineError."""


def all_meet(facts: Facts) -> World:
    """The world of an engine that needs nothing beside its rounds: all agents of the job."""
    wanted = agents(facts.wanted, facts.options, facts.env)
    return World(facts.options, wanted, Alone())
