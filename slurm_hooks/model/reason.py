"""Why a job has the size it has: a closed set of kinds for programs, a line each for people."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Why(enum.Enum):
    """What limits a job, or what it waits for. The values are what `--json` prints,
    they name metrics, and they stay."""

    FINISHED = "finished"  # the training is over
    STOPPED = "stopped"  # for good, after failures
    CANCELLED = "cancelled"  # by its user, or past its deadline
    CANCEL_UNCLEAR = "cancel_unclear"  # of some fragments, while others are still ending
    DIED = "died"  # a fragment did
    DEPENDENCY = "dependency"  # other jobs must end first
    HELD = "held"  # by an operator
    NOT_STARTED = "not_started"  # Slurm did not start what was released
    SUSPENDED = "suspended"  # by an operator
    UNKNOWN_STATE = "unknown_state"  # left alone
    OFF = "off"  # malleable jobs are switched off
    CANARY = "canary"  # it is not one of those that may run
    LIMIT = "limit"  # somebody else's job waits for a limit that its fragments count against
    GIVEN_BACK = "given_back"  # a node is
    HOLE_ENDS = "hole_ends"  # a node may be used until then
    LEAVING = "leaving"  # a fragment was asked to
    REGISTERING = "registering"  # slurmctld has begun, and nodes have not told it what they run
    ALONE = "alone"  # its fragments do not meet, so it is kept to one
    NOT_TRAINING = "not_training"  # a fragment runs and is in no round
    MAXIMUM = "maximum"  # it has that
    SIZE = "size"  # its script fails with some numbers of nodes
    WISH = "wish"  # it wants no more nodes now
    NO_WORK = "no_work"  # workers of the pool found none
    RESTING = "resting"  # it shrank or failed just now
    BELOW_MIN = "below_min"  # its other fragments are not back yet
    LOOKED_AT = "looked_at"  # it has a size only so that its speed there is seen
    CEILING = "ceiling"  # all malleable jobs together have what the site allows
    OTHER_NODES = "other_nodes"  # what stands in the way on nodes that it does not have


@dataclass(frozen=True)
class Reason:
    """One thing behind a job's size, in words for people."""

    why: Why
    text: str

    def __str__(self) -> str:
        return self.text
