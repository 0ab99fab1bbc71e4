"""What the fake Slurm keeps: array elements, other people's jobs, reservations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

START = 1_800_000_000
REQUEUE_WAIT_S = 120
LIMIT_CHECK_S = 30  # slurmctld looks at time limits every half minute
FINISHED = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"})
ON_NODES = frozenset({"RUNNING", "COMPLETING"})


@dataclass
class Element:
    """One array element as slurmctld keeps it; times are epoch seconds."""

    job: int
    index: int
    comment: str
    state: str = "PENDING"
    is_held: bool = True
    limit_min: int = 10
    nodes: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    start: Optional[int] = None
    end: Optional[int] = None
    eligible: Optional[int] = None
    restarts: int = 0
    exit_code: int = 0
    signalled: Optional[int] = None
    gone_at: Optional[int] = None  # when the processes of a COMPLETING element are gone
    then: str = ""  # what a COMPLETING element becomes

    @property
    def name(self) -> str:
        return f"{self.job}_{self.index}"


@dataclass
class Rigid:
    """A job of somebody else: seen in the queue from `seen`, starts at `start`."""

    job: int
    nodes: frozenset[str]
    seen: int
    start: int
    seconds: int
    state: str = "PENDING"


@dataclass
class Booking:
    """A reservation, visible from `seen`."""

    name: str
    nodes: frozenset[str]
    seen: int
    start: int
    end: int
