"""The line of a malleable job in the ledger, and the work that the job lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Optional

from slurm_hooks.history.harvest.values import JobFacts, Record
from slurm_hooks.model import Why
from slurm_hooks.model.job import NODE
from slurm_hooks.model.moments import noun_of

HOUR_S = 3600.0
ONE_INTERRUPTION_S = 30.0  # fragments lost within this time are 1 interruption of the job


@dataclass(frozen=True)
class JobLine:
    """A job over its whole life. Its sizes count `unit`. `over` is None until it ends. `stop` is
    the word in its marks if it was stopped."""

    job_id: int
    user: str
    account: str
    node_s: float
    interruptions: int
    least: int
    most: int
    min_nodes: int
    max_nodes: int
    first: datetime
    last: datetime
    over: Optional[Why] = None
    stop: str = ""
    unit: str = NODE

    @property
    def summary(self) -> str:
        """The line in the form by which `slurm.mark` replaces an older line."""
        hours = self.node_s / HOUR_S
        used = f"{hours:.1f}" if hours >= 10 else f"{hours:.2f}"
        sizes = f"{self.least}-{self.most} {noun_of(self.unit)}s"
        return f"malleable: {used} node-h, {self.interruptions} interruptions, {sizes}"

    def after(self, job: JobFacts, at: datetime, interruptions: int) -> JobLine:
        """Return the line after another tick at `at`. The first word about an end counts, since
        Slurm forgets the fragment that reported it before the others."""
        may_change = job.over is None or self.over in (None, Why.ENDED)
        return replace(
            self,
            node_s=self.node_s + job.node_s,
            interruptions=self.interruptions + interruptions,
            least=min((n for n in (self.least, job.nodes) if n), default=0),
            most=max(self.most, job.nodes),
            last=at,
            over=job.over if may_change else self.over,
            stop=job.stop or self.stop,
        )


def lines_after(lines: Mapping[int, JobLine], record: Record) -> dict[int, JobLine]:
    """Return the lines of this record's jobs, with its events added. A job that Slurm has forgotten
    keeps its line up to its probable end."""
    lost = Counter(e.fragment.job_id for e in record.endings if e.is_interruption)
    after = {}
    for job in record.jobs:
        line = lines.get(job.job_id) or _begun(job, record.at)
        after[job.job_id] = line.after(job, record.at, lost[job.job_id])
    for gone in record.forgotten:
        if gone.job_id in lines:
            line = lines[gone.job_id]
            used = line.node_s + gone.node_s
            after[gone.job_id] = replace(line, node_s=used, over=line.over or gone.how)
    return after


def _begun(job: JobFacts, at: datetime) -> JobLine:
    sizes = (0, 0, job.min_nodes, job.max_nodes)
    return JobLine(job.job_id, job.user, "", 0.0, 0, *sizes, at, at, unit=job.unit)


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
