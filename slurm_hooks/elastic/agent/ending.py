"""The end of an agent, the same for every engine: it leaves, or the training is over or cannot go
on.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import NoReturn, Union

from slurm_hooks.elastic.agent.actions import GiveUp, Leave, Outlived, Over
from slurm_hooks.elastic.agent.companion import Companion
from slurm_hooks.elastic.agent.last_out import save_what_is_left
from slurm_hooks.elastic.agent.options import Options
from slurm_hooks.elastic.agent.session import Session
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.rendezvous.state import Outcome
from slurm_hooks.elastic.signals import SignalListener

STRAY_S = 600.0  # between two looks: slurmd, once it is back, ends what Slurm does not know here
OUTLIVED = (
    "fragment {fragment} ends here: Slurm has taken its node for lost and ended this run of it; "
    "it trains again where Slurm starts it"
)
DESERTED = (
    "fragment {fragment} starts again: rank 0 was lost after the others had finished, so the end "
    "of the training is repeated"
)


class Ending:
    """Ends an agent. `dismiss` stops the programs that the engine still runs here beside the
    training processes, which have ended by then.
    """

    def __init__(
        self,
        options: Options,
        session: Session,
        signals: SignalListener,
        own_element: OwnElement,
        companion: Companion,
    ) -> None:
        self.dismiss: Callable[[], None] = lambda: None
        self._options = options
        self._session = session
        self._signals = signals
        self._own_element = own_element
        self._companion = companion
        self._has_ended = False

    def end_with(self, action: Union[Leave, Over, GiveUp, Outlived]) -> NoReturn:
        """Carry the action out. Raises DirectoryError, and SystemExit with 0 or with a message
        (exit code 1).
        """
        if isinstance(action, Leave):
            self._session.leave()
            self._go()
        if isinstance(action, GiveUp):
            self._session.close(is_failure=True)
            raise SystemExit(f"malleable: giving up: {action.why}")
        if isinstance(action, Outlived):
            self.close(is_failure=True)
            say(OUTLIVED.format(fragment=self._session.fragment))
            self._signals.silence()
            while not self._signals.is_terminated:  # the script must not go on here
                self._signals.wait_end(STRAY_S)
            raise SystemExit(128 + signal.SIGTERM)
        self._session.skip()
        self._companion.succeed()
        self._conclude(Outcome.FINISHED)
        raise SystemExit(0)

    def await_end(self) -> None:
        """The training processes here have finished.

        Return when the training has ended for all, so that the batch script may go on. Raises
        SystemExit if this fragment must leave before.
        """
        self._conclude(self._await(self._session))

    def _await(self, party: Union[Session, Companion]) -> Outcome:
        """Return how the training ended for all. It is open if this fragment must leave before
        that, or if the end cannot be known.
        """
        while (outcome := party.outcome()) is None:
            if self._session.is_asked_to_go():
                return Outcome.OPEN
            if self._session.is_deserted():
                say(DESERTED.format(fragment=self._session.fragment))
                self._go()
            time.sleep(self._options.poll_s)
        return outcome

    def _conclude(self, outcome: Outcome) -> None:
        if outcome is Outcome.FINISHED:
            outcome = self._await(self._companion)
        if outcome is Outcome.FINISHED:
            self._own_element.report_finished()
        elif self._session.is_asked_to_go():
            self._session.say_leave()
            self._go()

    def _go(self) -> NoReturn:
        """Leave: other agents do not wait for this agent any more. In a job array the batch script
        does not go on, because Slurm ends it.
        """
        self._companion.leave()
        save_what_is_left(self._session, self._signals, self._options.boundary_s)
        self.close(is_failure=False)
        self._own_element.put_back()
        raise SystemExit(128 + signal.SIGTERM if self._signals.is_terminated else 0)

    def close(self, is_failure: bool) -> None:
        """This agent ends. After a failure it is no longer a member. May be called twice."""
        if self._has_ended:
            return
        self._has_ended = True
        self._session.close(is_failure)
        self._companion.close(is_failure)
        self.dismiss()
