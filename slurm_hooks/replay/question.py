"""What the simulator asks a policy: who holds how many nodes of each class, and what there is.

Classes are of nodes that are alike; a policy that does not look at hole ends sees one class. A
policy knows no more of the future than the question tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from slurm_hooks.allocation.minimums import Standing
from slurm_hooks.replay.work import Kind

Row = tuple[int, ...]
SERVED = Standing(0, is_short=False)


@dataclass(frozen=True)
class Held:
    """A job, the nodes it has, `(class)`, and its age.

    One that `gains_past` takes nodes that are soon wanted: it stays until they are. After a planned
    change it does `redone_s` seconds of its work again, on average. `standing` says how it stands
    with its minimum.
    """

    kind: Kind
    row: Row
    may_grow: bool = True
    age_s: float = 0.0
    gains_past: bool = False
    redone_s: float = 0.0
    standing: Standing = SERVED


@dataclass(frozen=True)
class Question:
    """Jobs, and for each class the nodes there are (free or held) and the seconds they stay.

    Nodes of a class that is not `worth_taking` can be kept, but not be gained; `worth_past` is that
    for jobs that stay past planned starts. `turn` says which overdue job goes first.
    """

    jobs: tuple[Held, ...]
    capacity: tuple[int, ...]
    open_s: tuple[float, ...]
    worth_taking: tuple[bool, ...]
    worth_past: tuple[bool, ...]
    turn: int = 0

    def usable(self, job: Held) -> tuple[bool, ...]:
        """Whether the job may gain nodes, `(class)`."""
        return self.worth_past if job.gains_past else self.worth_taking


class Policy(Protocol):
    """Answers questions; `sees_ends` asks the simulator for one class per hole end."""

    sees_ends: bool

    def decide(self, question: Question) -> Sequence[Row]:
        """The nodes of each job, `(class)`."""


@dataclass
class Spent:
    """Node-seconds that jobs had, and at most what looking took of them."""

    node_s: float = 0.0
    probed_node_s: float = 0.0
    looks: int = 0
    jobs: int = 0
    jobs_probed: int = 0
