"""Presents the knowledge about a job or a family as values for people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from slurm_hooks.learning.store.family import Family
from slurm_hooks.model import Counts, Learned, Pauses, Rate


@dataclass(frozen=True)
class JobProfile:
    """A job: its report, the rates that still count (`counted`), and the result.

    `first_at` and `last_at` are the epoch seconds of the first and the last tick that saw it.
    """

    job_id: int
    family: Family
    min_nodes: int
    max_nodes: int
    first_at: float
    last_at: float
    learned: Learned = field(default_factory=Learned)
    rates: tuple[Rate, ...] = ()
    counted: tuple[Rate, ...] = ()
    counts: Counts = Counts.SAMPLES
    sync: Optional[float] = None
    pauses: Pauses = field(default_factory=Pauses)

    @property
    def newest(self) -> dict[int, Rate]:
        """By size, the newest rate that counts."""
        return {rate.nodes: rate for rate in self.counted}


@dataclass(frozen=True)
class FamilyProfile:
    """A family, and the knowledge with which its jobs begin.

    `most` is the largest size that any of its jobs asked for. Of its `jobs`, `speaking` have shown
    how they scale.
    """

    family: Family
    learned: Learned
    last_at: float
    most: int
    jobs: int
    speaking: int
