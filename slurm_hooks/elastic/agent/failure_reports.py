"""Failures of workers are reported when they happen, in the log and to `malleable explain`, and
the report is withdrawn when the training makes progress again. The agent that forms the next round
reports them, once for all.
"""

from __future__ import annotations

from slurm_hooks.elastic.batch.remark import withdraw_remark, write_remark
from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.rendezvous.rounds_log import describe_failures
from slurm_hooks.elastic.rendezvous.state import State


class FailureReports:
    """What one agent has reported."""

    def __init__(self) -> None:
        self._told = ""

    def tell(self, before: State, after: State) -> None:
        """A round was formed, or given up: report it if that counted one more failure."""
        if after.crashes <= before.crashes or before.round is None:
            return
        line = describe_failures(after, before.round.number)
        if after.crashes > 1:  # the first one is in the cause of the round
            say(line)
        self._told = line
        write_remark(line)

    def take_back(self) -> None:
        """The training has made progress."""
        if self._told:
            withdraw_remark(self._told)
            self._told = ""
