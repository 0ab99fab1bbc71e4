"""The history of a malleable job as a line for AdminComment, and the work that it lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.books.harvest.values import Record
from slurm_hooks.model.job import NODE
from slurm_hooks.model.plural import noun_of

HOUR_S = 3600.0
ONE_INTERRUPTION_S = 30.0  # fragments lost within this time are 1 interruption of the job


@dataclass(frozen=True)
class Life:
    """A job's node-seconds, its interruptions, its smallest and its largest size."""

    node_s: float
    interruptions: int
    least: int
    most: int
    unit: str = NODE

    @property
    def line(self) -> str:
        """The line in the form by which `slurm.mark` replaces an older line."""
        hours = self.node_s / HOUR_S
        used = f"{hours:.1f}" if hours >= 10 else f"{hours:.2f}"
        sizes = f"{self.least}-{self.most} {noun_of(self.unit)}s"
        return f"malleable: {used} node-h, {self.interruptions} interruptions, {sizes}"


def sum_up(lives: Mapping[int, Life], record: Record) -> dict[int, Life]:
    """Return the lives with the events of this record added."""
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
    """The number of times that a job lost fragments against the will of tick and user, in at most
    `ran_s` seconds of training."""

    count: int
    ran_s: float

    def share_done_twice(self, loss_s: float) -> float:
        """Return roughly the share of its work done twice, 0 to 1. At an interruption the newest
        checkpoint has on average half of its greatest age."""
        lost_s = self.count * loss_s / 2
        return lost_s / max(lost_s, self.ran_s) if lost_s > 0 else 0.0


LOOP_S = 2 * HOUR_S
LOOP_MOMENTS = 4
"""So many preemptions in LOOP_S are a loop. The job then has at most half an hour between two, and
spends much of it on starts. A busy hour of the site is no loop."""


@dataclass(frozen=True)
class Loop:
    """Repeated preemptions of a job: `count` times in `seconds`, mostly by jobs of the partition
    `taker` on `nodes`. Both are empty if the next jobs on its nodes are not known."""

    count: int
    seconds: float
    taker: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Loss:
    """A preempted run: its end in epoch seconds, the partition of the job that began on its nodes,
    and these nodes."""

    at_s: float
    taker: str
    nodes: tuple[str, ...]


def loop_of(losses: Sequence[Loss]) -> Optional[Loop]:
    """Return the loop in a job's sorted preemptions within LOOP_S, or None if they are few."""
    count = moments_of(loss.at_s for loss in losses)
    if count < LOOP_MOMENTS:
        return None
    takers = Counter(loss.taker for loss in losses if loss.taker)
    taker = min(takers, key=lambda name: (-takers[name], name), default="")
    nodes = {name for loss in losses if taker and loss.taker == taker for name in loss.nodes}
    return Loop(count, LOOP_S, taker, tuple(sorted(nodes)))


def moments_of(ends: Iterable[float]) -> int:
    """Count the times of interruption in sorted ends in seconds. Close ends count together."""
    count, last = 0, float("-inf")
    for at in ends:
        count += at - last > ONE_INTERRUPTION_S
        last = at
    return count
