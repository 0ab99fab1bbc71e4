"""A malleable job's life in one line, for AdminComment; and what was lost of its work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.books.harvest.values import Record
from slurm_hooks.model.job import NODE
from slurm_hooks.model.plural import noun_of

HOUR_S = 3600.0
ONE_INTERRUPTION_S = 30.0  # fragments that go within this time are one hit for the job


@dataclass(frozen=True)
class Life:
    """What a job has used, how often it was hit, its smallest and its largest size."""

    node_s: float
    interruptions: int
    least: int
    most: int
    unit: str = NODE

    @property
    def line(self) -> str:
        """As `slurm.mark` finds it again: to replace it, not to add to it."""
        hours = self.node_s / HOUR_S
        used = f"{hours:.1f}" if hours >= 10 else f"{hours:.2f}"
        sizes = f"{self.least}-{self.most} {noun_of(self.unit)}s"
        return f"malleable: {used} node-h, {self.interruptions} interruptions, {sizes}"


def sum_up(lives: Mapping[int, Life], record: Record) -> dict[int, Life]:
    """The lives with what has happened since they were written down."""
    done = dict(lives)
    for job in record.jobs:
        life = lives.get(job.job_id)
        if life is not None:
            interruptions = sum(
                e.is_interruption for e in record.endings if e.fragment.job_id == job.job_id
            )
            sizes = [n for n in (life.least, job.nodes) if n]
            done[job.job_id] = Life(
                life.node_s + job.node_s,
                life.interruptions + interruptions,
                min(sizes, default=0),
                max(life.most, job.nodes),
                life.unit,
            )
    return done


@dataclass(frozen=True)
class Interruptions:
    """At how many moments a job lost fragments that neither a tick nor its user wanted to end, in
    so many seconds of training at most."""

    count: int
    ran_s: float

    def share_done_twice(self, loss_s: float) -> float:
        """Roughly, of all its work, 0 to 1: a hit finds the newest checkpoint half as old as it
        gets."""
        lost_s = self.count * loss_s / 2
        return lost_s / max(lost_s, self.ran_s) if lost_s > 0 else 0.0


LOOP_S = 2 * HOUR_S
LOOP_MOMENTS = 4
"""So many preemptions in LOOP_S are a loop. A job then has half an hour or less between two, so it
spends much of its time on starts. A busy moment of the site, or two, are none."""


@dataclass(frozen=True)
class Loop:
    """A job is preempted again and again: at `count` moments in `seconds`, mostly by jobs of the
    partition `taker` on `nodes`. They are empty if it is not known who was given its nodes."""

    count: int
    seconds: float
    taker: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Loss:
    """A preempted run: when it ended, in epoch seconds, the partition of the job that began on its
    nodes, and these."""

    at_s: float
    taker: str
    nodes: tuple[str, ...]


def loop_of(losses: Sequence[Loss]) -> Optional[Loop]:
    """The loop that preemptions of one job within LOOP_S make, in order; None if they are few."""
    count = moments_of(loss.at_s for loss in losses)
    if count < LOOP_MOMENTS:
        return None
    takers = Counter(loss.taker for loss in losses if loss.taker)
    taker = min(takers, key=lambda name: (-takers[name], name), default="")
    nodes = {name for loss in losses if taker and loss.taker == taker for name in loss.nodes}
    return Loop(count, LOOP_S, taker, tuple(sorted(nodes)))


def moments_of(ends: Iterable[float]) -> int:
    """How many moments ends, in seconds and in order, belong to."""
    count, last = 0, float("-inf")
    for at in ends:
        count += at - last > ONE_INTERRUPTION_S
        last = at
    return count
