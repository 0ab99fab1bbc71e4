"""Explains a job's size: a reason for each limit, and for each thing that the job waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Optional

from slurm_hooks.model import (
    LIVE_STATES,
    Claim,
    Detail,
    FragmentState,
    MalleableJob,
    Reason,
    Resources,
    Verdict,
    Why,
)
from slurm_hooks.model.cluster import UNCLAIMED
from slurm_hooks.model.resources import NO_RESOURCES
from slurm_hooks.planning.cancels import lost_elements
from slurm_hooks.planning.eligibility import Eligibility
from slurm_hooks.planning.gates import JobKind
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.node_classes import LeftToOthers, Pool, natural
from slurm_hooks.planning.situation import Situation
from slurm_hooks.planning.survey import Survey
from slurm_hooks.planning.trouble import idle_fragments, wrong_size

NAMED = 3  # nodes


class Obstacles:
    """The obstacles on the nodes that a job does not have, with equal obstacles counted together.

    Equal nodes and equal jobs are judged once, whatever their number.
    """

    def __init__(
        self, survey: Survey, eligibility: Eligibility, pool: Pool, given: Mapping[int, int]
    ) -> None:
        """`given` are the units of each job. The rest of the pool goes to no job."""
        self._survey, self._eligibility, self._given = survey, eligibility, given
        self._pool = pool
        self._counts: dict[JobKind, Counter[Verdict]] = {}
        self._missing: dict[JobKind, Optional[Resources]] = {}
        self._of_left: dict[tuple[JobKind, LeftToOthers], Counter[Verdict]] = {}

    def reasons(self, job: MalleableJob) -> list[Reason]:
        """The obstacles of a job."""
        kind = self._eligibility.kind(job.job_id)
        verdicts = self._eligibility.verdicts(kind)
        if kind not in self._counts:
            self._counts[kind] = Counter(verdicts.values())
        counted = Counter(self._counts[kind])
        mine = {n for f in job.stirring if f.state in LIVE_STATES for n in f.nodes}
        counted.subtract(verdicts[name] for name in mine & verdicts.keys())
        shunned = self._eligibility.shunned(job)
        for name in (shunned.keys() & verdicts.keys()) - mine:
            counted[verdicts[name]] -= 1
            counted[self._eligibility.verdict(name, kind, shunned)] += 1
        left = self._pool.left_to_others(job.job_id)
        if (kind, left) not in self._of_left:
            self._of_left[kind, left] = Counter(verdicts[name] for name in left.units)
        counted.subtract(self._of_left[kind, left])
        open_verdicts = (verdict for verdict, n in counted.items() if n > 0)
        return [*_kept_back(left)] + [
            Reason(Why.OTHER_NODES, Detail(count=counted[verdict], verdict=verdict))
            for verdict in sorted(open_verdicts, key=_rank)
        ]

    def of_partition(self, job: MalleableJob) -> Optional[Reason]:
        """Say that no node of the partition has what a fragment needs, whether free or busy."""
        kind = self._eligibility.kind(job.job_id)
        if kind not in self._missing:
            self._missing[kind] = self._eligibility.missing(kind)
        asked = self._missing[kind]
        if asked is None:
            return None
        detail = Detail(partition=job.partition)
        if asked != NO_RESOURCES:
            detail["asked"] = asked
        return Reason(Why.NO_FIT, detail)

    def of_all(self, situation: Situation) -> list[Reason]:
        """The limits of all jobs, of the user or of the account that keep this job from growing."""
        mandate = self._survey.mandate
        if mandate.waits:
            return [*mandate.waits]
        of_all = () if mandate.ceiling is None else self._above(situation, mandate.ceiling)
        return [*of_all, situation.cap.reason] if situation.cap else [*of_all]

    def _above(self, situation: Situation, ceiling: int) -> Iterator[Reason]:
        """Say how the ceiling of all jobs keeps the job from growing, unless there is room."""
        each, per_node = self._eligibility.units(situation.job), self._eligibility.per_node
        needed, given = -(-situation.fewest * each // per_node), sum(self._given.values())
        if needed > ceiling:
            yield Reason(Why.CEILING, Detail(ceiling=ceiling, nodes_needed=needed))
        elif given + situation.job.request.unit * each > ceiling * per_node:
            shown = Detail(ceiling=ceiling, nodes_given=-(-given // per_node))
            yield Reason(Why.CEILING, shown)


def _kept_back(left: LeftToOthers) -> Iterator[Reason]:
    """Say that some free units are left to the small jobs of others."""
    if left.kept:
        count = sum(left.units.values())
        detail = Detail(nodes=left.names[:NAMED], count=count, kept=left.kept)
        if len(left.names) > NAMED:
            detail["more"] = len(left.names) - NAMED
        if left.kept == count:
            del detail["kept"]
        yield Reason(Why.KEPT_BACK, detail)


def _rank(verdict: Verdict) -> tuple[bool, bool, str, str]:
    """Sort nodes without room first, then nodes that the job can have, then the others."""
    is_open = verdict.why in (Why.USABLE, Why.REGISTERING, Why.NO_GROWTH)
    return verdict.why is not Why.TAKEN, not is_open, verdict.why.value, verdict.detail


def reasons_for(
    survey: Survey, situation: Situation, planned: int, obstacles: Obstacles
) -> tuple[Reason, ...]:
    """The reasons for a job's size, the most important first."""
    ground, care = survey.ground, situation.upkeep
    if care.has_ended:
        return care.reasons
    nodes = (*idle_fragments(ground, situation.job), *_leaving(survey, situation))
    if situation.barred:
        return (*care.reasons, *nodes)
    final = _final(ground, situation, planned)
    if final:
        return (*care.reasons, *nodes, final)
    waits = situation.waits
    reasons = [*care.reasons, *filter(None, waits), *nodes]
    if situation.wish is not None:
        reasons.append(Reason(Why.WISH, Detail(wish=situation.wish.nodes)))
    reasons += _manners(situation)
    if situation.job.way.zero_is_idle and not situation.upkeep.growable:
        return tuple(reasons)
    no_fit = obstacles.of_partition(situation.job)
    if no_fit:
        return (*reasons, no_fit)
    least = situation.least
    if situation.reachable < least and not (waits.growth or care.reasons or situation.cap):
        lacks = Detail(nodes_usable=situation.reachable, nodes_needed=least)
        reasons.append(Reason(Why.BELOW_MIN, lacks))
    others = obstacles.reasons(situation.job)
    if not planned and situation.share is None:
        reasons += _too_few(least, others)
    return (*reasons, *obstacles.of_all(situation), *others)


def _too_few(least: int, others: Iterable[Reason]) -> Iterator[Reason]:
    """Say that some nodes are usable, and fewer than the job needs to start."""
    verdicts = ((reason.detail.get("verdict"), reason.detail.get("count", 0)) for reason in others)
    usable = sum(count for verdict, count in verdicts if verdict and verdict.why is Why.USABLE)
    if 0 < usable < least:
        yield Reason(Why.BELOW_MIN, Detail(count=usable, nodes_needed=least))


def _manners(situation: Situation) -> Iterator[Reason]:
    """The sizes that the request allows."""
    request = situation.job.request
    if request.allowed and situation.sizes is not None:
        yield Reason(Why.SIZE, Detail(sizes_allowed=tuple(sorted(request.allowed))))


def _final(ground: Ground, situation: Situation, planned: int) -> Optional[Reason]:
    """The reason that ends the list: the job would not grow onto any node."""
    most, wish = situation.job.request.max_nodes, situation.wish
    if situation.is_apart and situation.job.is_apart:
        return Reason(Why.APART)
    if situation.is_apart:
        return Reason(Why.APART, Detail(seconds=ground.settings.failures.join_s))
    if wish is not None and not situation.cap and wish.nodes < most and planned >= situation.most:
        return Reason(Why.WISH, Detail(wish=wish.nodes, nodes_planned=planned))
    return _maximum(situation, planned)


def _maximum(situation: Situation, planned: int) -> Optional[Reason]:
    """Say that the job has all that it can ever have. None if it has less."""
    request, lost = situation.job.request, lost_elements(situation.job)
    most = max(request.allowed, default=request.max_nodes)
    if planned >= most:
        return Reason(Why.MAXIMUM, Detail(most=most))
    left = max(0, request.fragments - lost) * situation.widest
    if not lost or planned < left:
        return None
    return Reason(Why.MAXIMUM, Detail(most=left, cancelled=lost))


def _leaving(survey: Survey, situation: Situation) -> list[Reason]:
    reasons = []
    for fragment in situation.job.active:
        stay = situation.stays[fragment.id]
        for name in sorted(fragment.nodes, key=natural):
            hole = survey.holes.get(name)
            claim = UNCLAIMED if hole is None else hole.claim
            if stay.leaves is not None:
                wrong = wrong_size(fragment, hole.node, survey.ground.now) if hole else None
                reasons += [wrong] if wrong else []
                detail = Detail(nodes=(name,), cause=stay.leaves, **_end(claim))
                reasons.append(Reason(Why.GIVEN_BACK, detail))
            elif end := _end(claim):
                reasons.append(Reason(Why.HOLE_ENDS, Detail(nodes=(name,), **end)))
    for f in situation.job.stirring:
        if f.is_leaving and f.state is FragmentState.RUNNING:
            asked = Detail(fragments=(f.id,), nodes=tuple(sorted(f.nodes)))
            reasons.append(Reason(Why.LEAVING, asked))
    return reasons


def _end(claim: Claim) -> Detail:
    """Say when a hole ends, and who ends it. Empty if it has no end."""
    if claim.start is None:
        return Detail()
    return Detail(until=claim.start, source=claim.kind, by=claim.by)
