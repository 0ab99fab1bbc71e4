"""Evidence that the training makes progress in this run.

After such evidence the reconciler forgets earlier failures of the job, and the agents forget
earlier failures of the workers.
"""

from __future__ import annotations

import time

from slurm_hooks.elastic.agent.failure_reports import FailureReports
from slurm_hooks.elastic.agent.forewarning import Forewarning
from slurm_hooks.elastic.agent.membership import Membership
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.rendezvous.rounds import is_progress, lasted
from slurm_hooks.elastic.rendezvous.state import State


class Evidence:
    """The evidence that an agent sees. Methods raise DirectoryError."""

    def __init__(
        self,
        membership: Membership,
        forewarning: Forewarning,
        own_element: OwnElement,
        failures: FailureReports,
    ) -> None:
        self._membership = membership
        self._forewarning = forewarning
        self._own_element = own_element
        self._failures = failures

    def hear_samples(self, state: State) -> None:
        """See whether the training is farther than ever before, as `report()` counts."""
        samples = self._forewarning.samples()
        if samples <= state.farthest:
            return
        self._membership.advance(samples)
        if state.farthest:
            self._own_element.report_trained()
            self._failures.take_back()

    def see_checkpoint(self, state: State, saved_s: float | None) -> None:
        """See whether the newest complete checkpoint of this round was begun past the point of the
        last failure. `saved_s`: how long after the round began, `None` without a checkpoint.
        """
        if saved_s is None or not is_progress(state, int(saved_s)):
            return
        self._own_element.report_trained()
        self._failures.take_back()
        if state.crashed_after_s:
            self._membership.forgive()

    def see_planned_change(self, state: State) -> None:
        """The workers trained until a planned change: they were stopped on request, or others
        joined or left by torchft.
        """
        if state.round and is_progress(state, lasted(state.round, int(time.time()))):
            self._own_element.report_trained()
