"""What Slurm says of the elements of a job, and what that means. Only values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_hooks.elastic.batch.expected import epoch
from slurm_hooks.protocol.comment import Standing, parse

EACH_S = 60.0  # between two looks of the whole job
SLOW = 10.0  # so many times longer at most, if Slurm is slow or does not answer
MUCH_S = 1800.0  # a run that is killed later has not failed
LAST_S = 30.0  # before its end Slurm would end the element for good
LEAVE_S = 90.0  # before the end of the lease at the latest, and at random up to half a lease before

_ROW = re.compile(r"([0-9]+)\|([0-9]+)\|([A-Z_]+)\|([^|]*)\|([^|]*)\|([^|]*)\|(.*)")
_HERE = frozenset({"RUNNING", "CONFIGURING"})
_TAKEN = frozenset({"PREEMPTED", "TIMEOUT"})
_LOST = _TAKEN | {"BOOT_FAIL", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"}
_OVER = _LOST | {"CANCELLED", "COMPLETED", "DEADLINE"}


@dataclass(frozen=True)
class Row:
    """An element. `starts` and `ends` in epoch seconds, 0 if unknown."""

    array: int
    fragment: int
    state: str
    reason: str
    starts: int
    ends: int
    comment: str

    @property
    def is_here(self) -> bool:
        """It runs."""
        return self.state in _HERE

    @property
    def is_on_a_node(self) -> bool:
        """It runs, or is on its way to the queue or to its end."""
        return self.is_here or self.state == "COMPLETING"

    @property
    def is_over(self) -> bool:
        """It has ended for good."""
        return self.state in _OVER

    @property
    def was_taken(self) -> bool:
        """Slurm has ended it without a fault of its own."""
        return self.state in _TAKEN

    @property
    def has_failed(self) -> bool:
        """It was killed, or failed, before it could do much, or did not even start."""
        is_early = not self.starts or self.ends - self.starts < MUCH_S
        return self.is_over and not self.was_taken and is_early

    @property
    def has_agent(self) -> bool:
        """An agent has reported from it."""
        return parse(self.comment).standing is not None

    @property
    def has_finished(self) -> bool:
        """Its agent says that the training has finished. A script may have several trainings, and
        one that waits to start is not at its last.
        """
        is_said = parse(self.comment).standing is Standing.FINISHED
        return is_said and self.state != "PENDING"

    def is_leaving(self, run: int) -> bool:
        """Its agent says that it gives the node back in this run of the element."""
        return parse(self.comment).says(Standing.LEAVING, run)

    def has_trained(self, run: int) -> bool:
        """Its agent says that the training has made progress in this run of the element."""
        return parse(self.comment).says(Standing.TRAINED, run)


def request(array: int) -> list[str]:
    """Return the command that lists the elements of a job. Without --local it asks Slurm for its
    federation too.
    """
    words = ("squeue", "--local", "--noheader", "--array", "--states=all", f"--job={array}")
    return [*words, "--format=%F|%K|%T|%r|%S|%e|%k"]


def rows(text: str) -> list[Row]:
    """Read the answer to `request`."""
    matches = filter(None, map(_ROW.fullmatch, text.splitlines()))
    return [Row(int(m[1]), int(m[2]), m[3], m[4], epoch(m[5]), epoch(m[6]), m[7]) for m in matches]


def running(known: Sequence[Row]) -> int:
    """Return the number of elements that run."""
    return sum(row.is_here for row in known)


def pending(known: Sequence[Row]) -> list[Row]:
    """Return the elements that wait, for whatever reason."""
    return [row for row in known if row.state == "PENDING"]


def kept_back(known: Sequence[Row]) -> list[Row]:
    """Return the elements that Slurm keeps back after a requeue. A --begin of the user is over, as
    this is asked by an element that runs.
    """
    return [row for row in pending(known) if row.reason == "BeginTime"]


def lost(known: Sequence[Row]) -> list[Row]:
    """Return the elements that have ended and are wanted again: no user has cancelled them."""
    return [row for row in known if row.state in _LOST]


def settled(known: Sequence[Row]) -> frozenset[int]:
    """Return the fragments that are not on their way from a node to the queue."""
    between = (row.fragment for row in known if row.state == "COMPLETING")
    return frozenset(row.fragment for row in known) - frozenset(between)


def name(rows_: Sequence[Row]) -> str:
    """Return Slurm's name for these elements of an array, of which there is at least one."""
    return f"{rows_[0].array}_[{','.join(str(row.fragment) for row in rows_)}]"


def each_s(answer_s: float) -> float:
    """Return the time between two looks of the whole job, if Slurm's last answer took `answer_s`. A
    slow Slurm is asked less often.
    """
    return EACH_S * min(max(1.0, answer_s), SLOW)


def leave_at(ends: float, lease_s: float, share: float) -> float:
    """Return when to leave ahead of the end of a lease: elements that start together would end
    together. `share` is a random number from 0 to 1.
    """
    return ends - min(LEAVE_S, lease_s / 3) - share * lease_s / 2
