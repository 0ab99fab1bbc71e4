"""The work that a job loses with a node that is lost without notice, and advice for its user.

The job's agents report when checkpoints are written. The loss is a guess, and worded as a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from slurm_hooks.history.harvest.jobs import Interruptions, Loop
from slurm_hooks.model import MalleableJob, Request
from slurm_hooks.report.pages import address
from slurm_hooks.slurm.text import fold

DEAR_S = 60.0  # a smaller loss is no reason to change a script
_LINES = (
    "`checkpoint.watch(...)` and `checkpoint.reached(step)` reduce that to a single step: see {}"
)


@dataclass(frozen=True)
class LostWork:
    """An interruption repeats at most `loss_s` seconds of work. There were `interruptions`, and
    `done_twice` is the share of the job's work that they have cost. None: unknown."""

    loss_s: Optional[float]
    interruptions: Optional[int]
    done_twice: Optional[float]

    @property
    def advice(self) -> tuple[str, ...]:
        """A sentence if a change of the script pays."""
        if self.loss_s is None or self.loss_s < DEAR_S:
            return ()
        lines = _LINES.format(address("users/checkpoints"))
        apart = f"its checkpoints are up to {_span(self.loss_s)} apart"
        if not self.interruptions or not self.done_twice:
            return (f"{apart}, so a lost node repeats as much work; {lines}",)
        share = f"about {100 * self.done_twice:.0f} % of its work was done twice"
        times = "once" if self.interruptions == 1 else f"{self.interruptions} times"
        return (f"{share}: {apart}, and nodes were lost without notice {times}; {lines}",)


def lost_work(job: MalleableJob, interruptions: Optional[Interruptions]) -> LostWork:
    """Combine the reports of a job's agents with the ledger."""
    cost_s, count = job.loss_s, interruptions.count if interruptions else None
    share = interruptions.share_done_twice(cost_s) if interruptions and cost_s is not None else None
    return LostWork(cost_s, count, share)


def loop_lines(loop: Optional[Loop], request: Request) -> tuple[str, ...]:
    """Advice for a user whose job is preempted again and again."""
    if loop is None:
        return ()
    by = f", mostly by jobs of {loop.taker} on {fold(loop.nodes)}" if loop.taker else ""
    least = max(request.min_nodes, request.unit)
    ways = [f"prefer={least}"] if request.preferred != least and request.max_nodes > least else []
    may_have = request.slot is None or (request.slot.cpus and request.slot.memory_mib)
    ways += [f"core={least}"] if may_have and not request.core else []
    help_ = f": {' or '.join(ways)} in --malleable may help" if ways else ""
    return (f"preempted {loop.count} times in {loop.seconds / 3600:.0f} h{by}{help_}",)


def _span(seconds: float) -> str:
    if seconds < 2 * DEAR_S:
        return f"{seconds:.0f} seconds"
    minutes = seconds / 60
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.0f} hours"
