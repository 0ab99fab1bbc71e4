"""Form the next round for all agents, and report it. The agent that will be rank 0 does this.

Other modules decide when a round is formed, and by which agent.
"""

from __future__ import annotations

import time

from slurm_hooks.elastic.agent.failure_reports import FailureReports
from slurm_hooks.elastic.agent.membership import Membership
from slurm_hooks.elastic.agent.options import Options
from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.rendezvous.directory import DirectoryError
from slurm_hooks.elastic.rendezvous.rounds import expected, form, ranked
from slurm_hooks.elastic.rendezvous.rounds_log import describe, record
from slurm_hooks.elastic.rendezvous.state import Outcome, Round, State


class Forming:
    """Methods raise DirectoryError if the shared directory stays out of order."""

    def __init__(self, options: Options, membership: Membership, failures: FailureReports) -> None:
        self._options = options
        self._membership = membership
        self._directory = membership.directory
        self._failures = failures

    def form(self, queue: tuple[str, ...], port: int) -> None:
        """Form the round, with its store at `port` here, or give the training up. Do neither if
        `queue` is no longer expected.
        """
        before: list[State] = []

        def change(state: State) -> State:
            before[:] = [state]
            is_open = state.outcome is Outcome.OPEN and expected(state) == queue
            first = ranked(state, self._options.limits)[:1]  # by now it may be formed, or another's
            if not is_open or [m.token for m in first] != [self._membership.token]:
                return state
            return form(state, self._options.limits, self._options.host, port, int(time.time()))

        after = self._directory.update_patiently(change)
        self._failures.tell(before[0], after)
        if after.round is not None and after.round != before[0].round:
            self._report(before[0].round, after.round)

    def _report(self, old: Round | None, new: Round) -> None:
        if self._options.is_told:
            say(describe(old, new))
        try:
            self._directory.once.log_round(record(new, self._membership.restarts))
        except DirectoryError as error:
            self._directory.complain(error)
