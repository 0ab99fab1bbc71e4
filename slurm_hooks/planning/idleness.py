"""Explains why free nodes of the malleable partitions stay idle: each node counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from slurm_hooks.model import (
    IdleNodes,
    Intent,
    Level,
    Of,
    Request,
    Why,
)
from slurm_hooks.planning.dropping import handed_out
from slurm_hooks.planning.eligibility import Eligibility
from slurm_hooks.planning.node_classes import Pool
from slurm_hooks.planning.situation import Situation
from slurm_hooks.planning.survey import Survey


def idle_nodes(
    survey: Survey,
    eligibility: Eligibility,
    situations: Sequence[Situation],
    intents: Iterable[Intent],
    pool: Pool,
    probed: AbstractSet[int] = frozenset(),
) -> tuple[IdleNodes, ...]:
    """Count the free nodes without fragments by reason, in the order of the reasons.

    `probed` jobs have their least size for now, so that their speed there becomes known.
    """
    grants = [(n, i.fragment.job_id) for i in intents for n in i.nodes]
    given, granted = Counter(job_id for _, job_id in grants), {name for name, _ in grants}
    wanting = [s for s in situations if _wants_more(s, given[s.job.job_id])]
    ours = frozenset(survey.ground.settings.site.partitions)
    full = frozenset(s.job.job_id for s in wanting if s.cap)
    of_cores = {name for s in situations for f in s.job.core for name in f.nodes}
    used = len((eligibility.taken - of_cores) | granted)
    judge = _Judge(survey, eligibility, wanting, used, full, probed)
    free = (n for n, hole in survey.holes.items() if hole.is_idle and hole.node.partitions & ours)
    starting = handed_out(survey.mandate.level)
    counts = Counter(starting if n in granted else judge.reason(n) for n in free)
    return tuple(IdleNodes(reason, counts[reason]) for reason in Of.IDLE.whys if counts[reason])


def _wants_more(situation: Situation, given: int) -> bool:
    is_free = not (situation.is_apart or situation.cap)
    most = situation.most if is_free else situation.job.request.max_nodes
    return not situation.upkeep.has_ended and situation.size + given < most


def _nodes_of(request: Request) -> int:
    """The nodes of a fragment."""
    return request.unit if request.slot is None else 1


class _Judge:
    """Finds the reasons for nodes that no job got. Equal jobs are judged once."""

    def __init__(
        self,
        survey: Survey,
        eligibility: Eligibility,
        wanting: Sequence[Situation],
        used: int,
        full: frozenset[int],
        probed: AbstractSet[int],
    ) -> None:
        """`used` nodes count against the ceiling: granted now, or taken by fragments outside cores.

        A limit of Slurm's keeps `full` jobs from more.
        """
        self._survey, self._eligibility = survey, eligibility
        self._barred = {s.job.job_id for s in wanting if s.barred}
        self._makes_room = {s.job.job_id for s in wanting if s.barred and s.barred.why is Why.LIMIT}
        least = min((_nodes_of(s.job.request) for s in wanting), default=1)
        ceiling = survey.mandate.ceiling
        self._is_full, self._full = ceiling is not None and used + least > ceiling, full
        self._wanting = {s.job.job_id for s in wanting}
        self._kinds = {eligibility.kind(job_id) for job_id in self._wanting}
        self._probed = probed
        self._ready = {s.job.job_id for s in wanting if s.upkeep.growable and not s.waits.growth}

    def reason(self, name: str) -> Why:
        """Say why this free node was not handed out."""
        mandate = self._survey.mandate
        if mandate.level is Level.OFF:
            return Why.OFF
        if not self._wanting:
            return Why.NO_JOB
        if mandate.waits:
            return mandate.waits[0].why
        fitting = self._wanting.intersection(self._eligibility.jobs(name))
        if fitting and (self._is_full or fitting <= self._full):
            return Why.CEILING
        fitting -= self._full
        if fitting and fitting <= self._barred:
            return Why.LIMIT if fitting & self._makes_room else Why.UNFIT
        if ready := fitting & self._ready:
            return Why.PROBED if ready <= self._probed else Why.NOT_GIVEN
        if fitting:
            return Why.RESTING
        return self._obstacle(name)

    def _obstacle(self, name: str) -> Why:
        """The obstacle of the job that is nearest to using the node."""
        kinds, shunners = self._kinds, self._eligibility.shunners(name)
        if shunners:
            kinds = {self._eligibility.kind(job_id) for job_id in self._wanting - shunners}
        whys = {self._eligibility.verdict(name, kind).why for kind in kinds}
        if Why.KEPT_BACK in whys:
            return Why.NOT_GIVEN
        nearest = (Why.HOLE_SHORT, Why.SUSPECT)
        return next((why for why in nearest if why in whys), Why.UNFIT)
