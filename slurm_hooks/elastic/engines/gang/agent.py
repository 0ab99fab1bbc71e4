"""An agent of a gang without torchrun: it joins round after round, and runs the command in each.

The session decides when each step is due. The engine adds the other parts of a round (crew.py).
"""

from __future__ import annotations

import time
from typing import Optional

from slurm_hooks.elastic.agent.assemble import Parts
from slurm_hooks.elastic.agent.entering import Entering
from slurm_hooks.elastic.engines.gang.crew import Crew
from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.rendezvous.state import Round, Stop

POLL_S = 0.1
AFTER_FAILURE_S = 1.0  # a command may fail because of a change that this agent has not seen yet


class GangAgent:
    """All methods raise DirectoryError if the shared directory stays out of order. They raise
    SystemExit if this fragment leaves, or if the work is over or cannot go on.
    """

    def __init__(self, parts: Parts, crew: Crew, farewell_s: float) -> None:
        self._session = parts.session
        self._signals = parts.signals
        self._ending = parts.ending
        self._ending.dismiss = crew.close
        self._crew = crew
        self._farewell_s = farewell_s
        self._ended_at: Optional[float] = None  # the end of the last round, by the monotonic clock
        self._entering = Entering(self._session, parts.companion, self._ending, lambda: crew.port)

    def run(self) -> None:
        """Run until the work has finished."""
        self._signals.listen()
        has_finished = False
        try:
            while not self._live(self._entering.next_round()):
                pass
            self._session.succeed()
            self._ending.await_end()
            has_finished = True
        finally:
            self._crew.end_round(self._farewell_s)
            self._ending.close(is_failure=not has_finished)

    def _live(self, round_: Round) -> bool:
        """Run a round, and tell whether the work has finished in it. If not, this agent is back on
        the waiting list.
        """
        if not self._crew.begin_round(round_, self._session.rank, self._session.is_broken):
            say(f"round {round_.number} failed to start; retrying")
            self._crew.end_round(0.0)
            self._session.begin_wait()
            return False
        if self._ended_at is not None:
            later_s = time.monotonic() - self._ended_at
            say(f"round {round_.number} started, {later_s:.2f} s after the last round ended here")
        code = self._watch()
        if code == 0:
            return True
        asked_at, is_seen = time.monotonic(), self._crew.has_command
        self._crew.end_round()
        self._ended_at = time.monotonic()
        took_s = self._ended_at - asked_at
        say(f"round {round_.number} ended here, {took_s:.2f} s after its stop signal")
        self._session.begin_wait(code or 0, is_seen=is_seen)
        return False

    def _watch(self) -> Optional[int]:
        """Return the exit code with which the command has ended, 0 if the work has finished, or
        `None` when the command must stop and still runs.
        """
        deadline = float("inf")
        while True:
            code = self._crew.exit_code(self._session)
            if code == 0:
                return 0
            stop = self._session.look()
            if stop is not Stop.NO:
                if stop is not Stop.NOW:
                    self._crew.meet(self._session.is_broken)
                return code
            if code is not None:
                deadline = min(deadline, time.monotonic() + AFTER_FAILURE_S)
                if time.monotonic() >= deadline:
                    return code
            time.sleep(POLL_S)
