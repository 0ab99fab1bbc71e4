"""Weighs leaving before another user's planned start against staying until Slurm takes the node.

At a planned start Slurm preempts the fragment, so the other job does not wait. That needs a
partition whose terms have no grace, and a fragment past its exempt time. The malleable job pays:
its whole gang returns to the last checkpoint. To leave ahead costs the node for minutes, often in
vain, since planned starts move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from slurm_hooks.model import ClaimKind, Fragment, FragmentId, MalleableJob
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.holes import Hole


def pays_to_stay(loss_s: float, size: int, taken: int, flee_s: float) -> bool:
    """Tell whether an interruption costs no more than leaving early.

    An interruption costs each of `size` nodes at most `loss_s` seconds of work, half on average. To
    leave costs `flee_s` seconds on each of the `taken` nodes.
    """
    return loss_s / 2 * size <= taken * flee_s


def beyond_s(loss_s: float, redoes: bool) -> float:
    """Seconds of work that an interruption costs beyond a planned change.

    The result is 0 if the job `redoes` its work since the newest checkpoint at planned changes too.
    Such a job never needs to leave ahead.
    """
    return 0.0 if redoes else loss_s


def redone_s(loss_s: float, redoes: bool) -> float:
    """Seconds of work that a planned change costs a job that returns to its newest checkpoint.

    On average it is half of the largest loss. To know the moment of the checkpoint brings no more
    (docs/lab/2026-11-22-lost-node.md).
    """
    return loss_s / 2 if redoes else 0.0


@dataclass(frozen=True)
class Interruptions:
    """The losses of jobs.

    An interruption costs `worst_s` seconds of work if the job has reported no figure. Leaving in
    time costs `early_s` seconds of a node in addition to the notice.
    """

    ground: Ground
    worst_s: float
    early_s: float

    def flee_s(self, job: MalleableJob) -> float:
        """The seconds of a node that the job loses by leaving in time."""
        return self.early_s + self.ground.lane(job).notice.total_seconds()

    def cost_s(self, job: MalleableJob) -> float:
        """The seconds of work that an interruption costs the job, as far as is known.

        A lost worker of a pool costs the others no work. Its own loss counts as 0 unless it is
        reported.
        """
        if not job.way.works_as_one:
            return job.loss_s or 0.0
        return self.worst_s if job.loss_s is None else job.loss_s

    def may_gain(self, job: MalleableJob) -> bool:
        """Tell whether the job may take a node despite planned starts, except the nearest.

        It may if it would stay there with another fragment.
        """
        if self.ground.lane(job).terms.grace:
            return False
        unit, beyond = job.request.unit, beyond_s(self.cost_s(job), job.redoes)
        others = job.size if job.way.works_as_one else 0
        return pays_to_stay(beyond, others + unit, unit, self.flee_s(job))

    def redone_s(self, job: MalleableJob) -> float:
        """The seconds of work that a planned change costs the job."""
        return redone_s(self.cost_s(job), job.redoes)

    def staying(self, job: MalleableJob, holes: Mapping[str, Hole]) -> frozenset[FragmentId]:
        """The fragments that stay beyond the planned starts on their nodes.

        All nodes that Slurm takes at the same moment are a single interruption. A job with a
        planned start would wait for a fragment that is exempt then or has a grace. So such a
        fragment leaves in time.
        """
        lane, flee_s = self.ground.lane(job), self.flee_s(job)
        size, cost_s = job.size, beyond_s(self.cost_s(job), job.redoes)
        is_one = job.way.works_as_one
        ends = [(f, _ends(f, holes)) for f in job.active]
        taken = Counter(end for f, mine in ends for end in mine for _ in range(f.size))
        return frozenset(
            f.id
            for f, mine in ends
            if all(
                lane.is_taken_at(end, f.start)
                and pays_to_stay(cost_s, size if is_one else taken[end], taken[end], flee_s)
                for end in mine
            )
        )


def _ends(fragment: Fragment, holes: Mapping[str, Hole]) -> set[datetime]:
    """The moments at which planned starts take the fragment. It leaves as a whole."""
    mine = (holes[name].claim for name in fragment.nodes if name in holes)
    return {c.start for c in mine if c.kind is ClaimKind.PLANNED and c.start is not None}


def interruptions_of(ground: Ground) -> Interruptions:
    """Read the cost of interruptions from the settings, and the time kept before a hole's end."""
    settings, lease = ground.settings, ground.settings.lease
    early_s = lease.margin_s + ground.slurm.kill_wait.total_seconds()
    return Interruptions(ground, settings.plan.loss_s, early_s + settings.tick.every_s)
