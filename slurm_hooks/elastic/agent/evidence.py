"""What counts as progress of the training in this run, and what follows from it: the
reconciler forgets earlier failures of the job, the agents those of the workers.
"""

from __future__ import annotations

import time

from slurm_hooks.elastic.agent.failing import Failing
from slurm_hooks.elastic.agent.forewarning import Forewarning
from slurm_hooks.elastic.agent.membership import Membership
from slurm_hooks.elastic.batch.speaker import Speaker
from slurm_hooks.elastic.rendezvous.rounds import is_progress, lasted
from slurm_hooks.elastic.rendezvous.state import State


class Evidence:
    """As one agent sees it. Methods raise DirectoryError."""

    def __init__(
        self,
        membership: Membership,
        forewarning: Forewarning,
        speaker: Speaker,
        failing: Failing,
    ) -> None:
        self._membership = membership
        self._forewarning = forewarning
        self._speaker = speaker
        self._failing = failing

    def hear_samples(self, state: State) -> None:
        """`report()` may have told that the training is farther than ever before."""
        samples = self._forewarning.samples()
        if samples <= state.farthest:
            return
        self._membership.advance(samples)
        if state.farthest:
            self._speaker.tell_trained()
            self._failing.take_back()

    def see_planned_change(self, state: State) -> None:
        """The workers trained until they were stopped on request, or until others came or
        went by torchft."""
        if state.round and is_progress(state, lasted(state.round, int(time.time()))):
            self._speaker.tell_trained()
