"""The simulator's question to a policy: the nodes of each job, and all nodes.

Classes group equal nodes. A policy that ignores hole ends sees a single class. A policy knows no
more of the future than the question gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slurm_hooks.replay.outcome import Outcome
from slurm_hooks.replay.work import Kind

Row = tuple[int, ...]


@dataclass(frozen=True)
class Held:
    """A job, the nodes it has, `(class)`, and its age."""

    kind: Kind
    row: Row
    age_s: float = 0.0


@dataclass(frozen=True)
class Question:
    """Jobs, and for each class its nodes (free or held) and the seconds for which they stay."""

    jobs: tuple[Held, ...]
    capacity: tuple[int, ...]
    open_s: tuple[float, ...]


class Policy(Protocol):
    """Answers questions. If it `sees_ends`, it asks the simulator for a class for each hole end."""

    sees_ends: bool

    def decide(self, question: Question) -> Sequence[Row]:
        """The nodes of each job, `(class)`."""


@dataclass
class Spent:
    """Node-seconds of jobs, and the part of them spent at a size only to probe it.

    `looks` counts the probes, `jobs_probed` the jobs with a probe.
    """

    node_s: float = 0.0
    probed_node_s: float = 0.0
    looks: int = 0
    jobs: int = 0
    jobs_probed: int = 0


@dataclass
class Learnt(Outcome):
    """The outcome of a run in which curves had to be learned, and the cost of learning."""

    spent: Spent = field(default_factory=Spent)
