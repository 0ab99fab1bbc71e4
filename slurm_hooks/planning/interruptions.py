"""Whether it pays to leave before somebody else's planned start, or to stay until Slurm takes the
node.

A planned start is no wall: Slurm preempts a fragment at that moment, so nobody waits for it, where
the terms of its partition have no grace and its exempt time is over. What that costs is the job's
own: the whole gang goes back to its last checkpoint. Leaving ahead costs the node for minutes,
often in vain, since planned starts move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from slurm_hooks.model import Fragment, FragmentId, Hole, HoleEnd, MalleableJob
from slurm_hooks.planning.ground import Ground


def pays_to_stay(loss_s: float, size: int, taken: int, flee_s: float) -> bool:
    """True if a hit, which costs each of `size` nodes `hit_s` seconds of work at most and half of
    that on average, is no dearer than leaving `taken` of them `flee_s` seconds early."""
    return loss_s / 2 * size <= taken * flee_s


def beyond_s(loss_s: float, redoes: bool) -> float:
    """Seconds of work that a hit costs beyond a planned change: nothing if the job `redoes` its
    work since the newest checkpoint then too, so that it need never leave ahead."""
    return 0.0 if redoes else loss_s


def redone_s(loss_s: float, redoes: bool) -> float:
    """Seconds of work that a planned change costs a job which goes back to its newest checkpoint
    then: at some moment that is half of what it is at most. To know the moment of the checkpoint
    brings no more (docs/lab/2026-11-22-lost-node.md)."""
    return loss_s / 2 if redoes else 0.0


@dataclass(frozen=True)
class Interruptions:
    """What jobs lose: `worst_s` seconds of work at a hit where nobody has told how much, and
    `early_s` seconds of a node beside the notice by leaving in time."""

    ground: Ground
    worst_s: float
    early_s: float

    def flee_s(self, job: MalleableJob) -> float:
        """The seconds of a node that the job loses by leaving in time."""
        return self.early_s + self.ground.lane(job).notice.total_seconds()

    def cost_s(self, job: MalleableJob) -> float:
        """The seconds of its work that a hit costs the job, as far as is known. One worker of a
        pool costs the others nothing, and what it loses itself is taken as little if untold."""
        if not job.way.works_as_one:
            return job.loss_s or 0.0
        return self.worst_s if job.loss_s is None else job.loss_s

    def may_gain(self, job: MalleableJob) -> bool:
        """True if the job may take nodes with no regard to planned starts but the nearest: with one
        fragment more it would stay there."""
        if self.ground.lane(job).terms.grace:
            return False
        unit, beyond = job.request.unit, beyond_s(self.cost_s(job), job.redoes)
        others = job.size if job.way.works_as_one else 0
        return pays_to_stay(beyond, others + unit, unit, self.flee_s(job))

    def redone_s(self, job: MalleableJob) -> float:
        """The seconds of its work that a planned change costs the job."""
        return redone_s(self.cost_s(job), job.redoes)

    def staying(self, job: MalleableJob, holes: Mapping[str, Hole]) -> frozenset[FragmentId]:
        """The fragments that stay beyond the planned starts on their nodes.

        What Slurm takes at one moment is one hit. A job with a planned start waits for a fragment
        that is exempt then, or has a grace, so such a fragment leaves in time.
        """
        lane, flee_s = self.ground.lane(job), self.flee_s(job)
        size, cost_s = job.size, beyond_s(self.cost_s(job), job.redoes)
        is_one = job.way.works_as_one
        ends = [(f, _ends(f, holes)) for f in job.active]
        taken = Counter(end for f, found in ends for end in found for _ in range(f.size))
        return frozenset(
            f.id
            for f, found in ends
            if all(
                lane.is_taken_at(end, f.start)
                and pays_to_stay(cost_s, size if is_one else taken[end], taken[end], flee_s)
                for end in found
            )
        )


def _ends(fragment: Fragment, holes: Mapping[str, Hole]) -> set[datetime]:
    """The moments at which planned starts take the fragment; it goes as a whole."""
    mine = (holes[name] for name in fragment.nodes if name in holes)
    return {h.end for h in mine if h.source is HoleEnd.PLANNED and h.end is not None}


def interruptions_of(ground: Ground) -> Interruptions:
    """What the settings say of hits, and what fleeing costs beside the notice: all that is kept
    clear before a hole's end."""
    settings, lease = ground.settings, ground.settings.lease
    early_s = lease.margin_s + ground.slurm.kill_wait.total_seconds()
    return Interruptions(ground, settings.plan.loss_s, early_s + settings.tick.every_s)
