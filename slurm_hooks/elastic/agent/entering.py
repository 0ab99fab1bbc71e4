"""Bring an agent into the next round, the same for every engine. The session names the next action,
and this module carries it out.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from slurm_hooks.elastic.agent.actions import Action, Enter, Form, Rejoin, Wait
from slurm_hooks.elastic.agent.companion import Companion
from slurm_hooks.elastic.agent.ending import Ending
from slurm_hooks.elastic.agent.session import Session
from slurm_hooks.elastic.rendezvous.state import Round


class Entering:
    """`serve` returns the port at which this agent serves the store of the next round."""

    def __init__(
        self, session: Session, companion: Companion, ending: Ending, serve: Callable[[], int]
    ) -> None:
        self._session = session
        self._companion = companion
        self._ending = ending
        self._serve = serve

    def next_round(self) -> Round:
        """Wait until this agent is in a round. Raises DirectoryError, and SystemExit if this agent
        gets no further round.
        """
        while True:
            action = self._next_action()
            if isinstance(action, Enter):
                return action.round
            self._carry_out(action)

    def _next_action(self) -> Action:
        action = None
        if not self._session.is_in and not self._session.is_asked_to_go():
            action = self._companion.enter(self._session.ends)
        return action or self._session.next_action()

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Wait):
            time.sleep(action.pause_s * random.uniform(0.8, 1.2))
        elif isinstance(action, Rejoin):
            self._session.rejoin()
        elif isinstance(action, Form):
            self._session.form(action.queue, self._serve())
        elif not isinstance(action, Enter):
            self._ending.end_with(action)
