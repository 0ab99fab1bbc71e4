"""Report failures of workers when they happen, in the log and to `malleable explain`.

The agent that forms the next round reports them, once for all. An agent whose node has reached the
job's memory limit reports that. Both withdraw their report when the training makes progress again.
"""

from __future__ import annotations

from slurm_hooks.elastic.agent.memory_limit import REACHED, MemoryLimit
from slurm_hooks.elastic.batch.remark import withdraw_remark, write_remark
from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.rendezvous.rounds_log import describe_failures
from slurm_hooks.elastic.rendezvous.state import State


class FailureReports:
    """The report that an agent has made."""

    def __init__(self) -> None:
        self._remark = ""
        self._is_memory = False
        self._memory_limit = MemoryLimit()

    def look_here(self, fragment: int) -> None:
        """The workers of this fragment have failed here. Report it if the kernel tells why."""
        if self._memory_limit.was_reached():
            self._is_memory = True
            line = REACHED.format(fragment=fragment)
            say(line)
            self._write(line)

    def tell(self, before: State, after: State) -> None:
        """A round was formed, or given up. Report it if that counted a further failure."""
        if after.crashes <= before.crashes or before.round is None:
            return
        line = describe_failures(after, before.round.number)
        if after.crashes > 1:  # the first failure is in the cause of the round
            say(line)
        if not self._is_memory:
            self._write(line)

    def _write(self, line: str) -> None:
        self._remark = line
        write_remark(line)

    def take_back(self) -> None:
        """The training has made progress."""
        if self._remark:
            withdraw_remark(self._remark)
            self._remark, self._is_memory = "", False
