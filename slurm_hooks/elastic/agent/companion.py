"""The world of an engine: the agents that meet in a round, and the programs that run beside the
rounds. The folder of an engine makes it. Here are values and protocols only.
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
    """The engine cannot run here. The message tells the user how to mend that."""


class Companion(Protocol):
    """The part of an engine in an agent. Only `enter` raises."""

    def begin_wait(self) -> None:
        """No training process runs here, and a round is wanted."""

    def enter(self, ends: int) -> Optional[Action]:
        """Take part, before the first round. Return Wait if that cannot be yet, and Over if no work
        is left.

        `ends` is the end of this lease (epoch seconds, 0: unknown). Raises DirectoryError.
        """

    def take_planned_change(self) -> bool:
        """Tell whether other agents joined or left as planned, without a new round here, since the
        last call.
        """

    def leave(self) -> None:
        """This fragment leaves: hand over the things that others need. May be called more than
        once.
        """

    def succeed(self) -> None:
        """The training processes here have finished."""

    def outcome(self) -> Optional[Outcome]:
        """Return how the training ended for all, or `None` before that is known. It has finished
        here.
        """

    def close(self, is_failure: bool) -> None:
        """This agent ends."""


class Alone:
    """The companion of an engine that needs only its rounds."""

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
    """The agents that meet in the rounds of an agent.

    `wanted` are the fragments of the agents expected at the start, empty if unknown. Others
    `keep_state` if they hold the state that this agent loses.
    """

    options: Options
    wanted: tuple[int, ...]
    companion: Companion
    keep_state: bool = False


@dataclass(frozen=True)
class Facts:
    """The facts about an agent when its world is made.

    `options` are the options of the job, `me` is this agent, and `wanted` has the fragment of every
    expected node (empty if unknown). Its training processes will have the environment `env`.
    """

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
    """Return the world of an engine that needs only its rounds: all agents of the job meet."""
    wanted = agents(facts.wanted, facts.options, facts.env)
    return World(facts.options, wanted, Alone())
