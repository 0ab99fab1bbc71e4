"""Why a job has the size it has: a reason for each thing that limits it or that it waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Optional

from slurm_hooks.model import (
    ON_NODES,
    FragmentState,
    Hole,
    HoleEnd,
    MalleableJob,
    Reason,
    Verdict,
    Why,
)
from slurm_hooks.model.moments import shown
from slurm_hooks.model.plural import plural
from slurm_hooks.planning.cancels import gone
from slurm_hooks.planning.eligibility import Eligibility, JobKind
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.meeting import idle_lines
from slurm_hooks.planning.modes import ceiling_text
from slurm_hooks.planning.node_classes import natural
from slurm_hooks.planning.situation import Situation
from slurm_hooks.planning.sizes import why_not
from slurm_hooks.planning.survey import Survey


class Obstacles:
    """What stands in the way on the nodes that a job does not have, alike ones counted together.

    Nodes and jobs that are alike are looked at once, whatever their number.
    """

    def __init__(self, survey: Survey, eligibility: Eligibility, given: int) -> None:
        """`given` nodes go to all jobs together."""
        self._survey, self._eligibility, self._given = survey, eligibility, given
        self._seen: dict[JobKind, Mapping[str, Verdict]] = {}
        self._counts: dict[JobKind, Counter[Verdict]] = {}

    def reasons(self, job: MalleableJob) -> list[Reason]:
        """Those of one job."""
        kind, verdicts = self._eligibility.kind(job.job_id), self._verdicts(job)
        counted = Counter(self._counts[kind])
        mine = {n for f in job.fragments if f.state in ON_NODES for n in f.nodes}
        counted.subtract(verdicts[name] for name in mine & verdicts.keys())
        shunned = self._eligibility.shunned(job)
        for name in (shunned.keys() & verdicts.keys()) - mine:
            counted[verdicts[name]] -= 1
            counted[self._eligibility.verdict(name, kind, shunned)] += 1
        found = (verdict for verdict, n in counted.items() if n > 0)
        return [
            Reason(Why.OTHER_NODES, nodes=counted[verdict], verdict=verdict)
            for verdict in sorted(found, key=_rank)
        ]

    def of_all(self, situation: Situation) -> list[Reason]:
        """One if something that holds for all jobs keeps this one from growing."""
        mandate, request = self._survey.mandate, situation.job.request
        if mandate.registering:
            return [Reason(Why.REGISTERING, mandate.registering_line)]
        ceiling = mandate.ceiling
        if ceiling is None:
            return []
        limit = ceiling_text(ceiling)
        if situation.least > ceiling:
            text = f"{limit}, and this one needs {situation.least}: it cannot start"
            return [Reason(Why.CEILING, text)]
        is_full = self._given + request.unit > ceiling
        return [Reason(Why.CEILING, f"{limit}, and get {self._given}")] if is_full else []

    def _verdicts(self, job: MalleableJob) -> Mapping[str, Verdict]:
        """On the nodes of its partition, the same for all jobs that are like it."""
        kind = self._eligibility.kind(job.job_id)
        if kind not in self._seen:
            names = (n.name for n in self._survey.nodes.values() if job.partition in n.partitions)
            self._seen[kind] = {name: self._eligibility.verdict(name, kind) for name in names}
            self._counts[kind] = Counter(self._seen[kind].values())
        return self._seen[kind]


def _rank(verdict: Verdict) -> tuple[bool, bool, str, str]:
    """Nodes without room first, then those that the job can have, then the others."""
    is_open = verdict.why in (Why.USABLE, Why.REGISTERING)
    return verdict.why is not Why.TAKEN, not is_open, verdict.why.value, verdict.detail


def reasons_for(
    survey: Survey, situation: Situation, planned: int, obstacles: Obstacles
) -> tuple[Reason, ...]:
    """What is behind a job's size, the most important first."""
    ground, care = survey.ground, situation.upkeep
    if care.is_over:
        return care.reasons
    leaving = _leaving(survey, situation)
    idle = idle_lines(ground, situation.job)
    found = [*care.reasons, *(Reason(Why.NOT_TRAINING, line) for line in idle), *leaving]
    if situation.barred:
        return tuple(found)
    if situation.failing:
        found.append(Reason(Why.SIZE, why_not(situation.job, situation.failing)))
    final = _final(ground, situation, planned)
    if final:
        return (*found, final)
    if situation.wish is not None:
        found.append(
            Reason(Why.WISH, f"wishes for {plural(situation.wish.nodes, 'node')} at most now")
        )
    if situation.snoozes:
        snooze_s = ground.settings.plan.snooze_s
        text = f"shrank or failed less than {snooze_s:g} s ago and does not grow yet"
        found.append(Reason(Why.RESTING, text))
    if situation.is_tried:
        text = (
            f"has failed {plural(situation.job.failures, 'time')}: one worker is tried, and others "
            f"follow once it has run for {ground.settings.failures.join_s} s"
        )
        found.append(Reason(Why.RESTING, text))
    if situation.job.way.zero_is_idle and not situation.upkeep.growable:
        return tuple(found)
    least = situation.least
    if situation.reachable < least and not (situation.snoozes or care.reasons):
        text = (
            f"can reach {plural(situation.reachable, 'node')} now, needs {least}: "
            "waits for its other fragments to come back"
        )
        found.append(Reason(Why.BELOW_MIN, text))
    return (*found, *obstacles.of_all(situation), *obstacles.reasons(situation.job))


def _final(ground: Ground, situation: Situation, planned: int) -> Optional[Reason]:
    """The reason beside which no other counts: it would not grow onto any node."""
    most, wish = situation.job.request.max_nodes, situation.wish
    if situation.is_apart and situation.job.is_apart:
        return Reason(
            Why.ALONE,
            "its nodes do not share its work directory, so several fragments would each train on "
            "their own: it is kept to one. Submit from a directory that all nodes share",
        )
    if situation.is_apart:
        return Reason(
            Why.ALONE,
            f"no fragment has joined a round within {ground.settings.failures.join_s} s: the "
            "script does not start torchrun, or Slurm's commands are missing where it runs; "
            "several fragments would each train on their own, so it is kept to one",
        )
    if wish is not None and wish.nodes < most and planned >= situation.most:
        return Reason(
            Why.WISH, f"wishes for {plural(wish.nodes, 'node')} at most now, and has that"
        )
    return Reason(Why.MAXIMUM, text) if (text := _maximum(situation.job, planned)) else None


def _maximum(job: MalleableJob, planned: int) -> str:
    """That it has all the nodes that it can ever have; empty if it has not."""
    request, lost = job.request, gone(job)
    if planned >= request.max_nodes:
        return f"has its maximum of {plural(request.max_nodes, 'node')}"
    left = max(0, request.fragments - lost) * request.unit
    if not lost or planned < left:
        return ""
    is_are, them = ("is", "it") if lost == 1 else ("are", "them")
    nodes = plural(left, "node")
    return (
        f"{lost} of its fragments {is_are} cancelled: it has its maximum of {nodes} without {them}"
    )


def _leaving(survey: Survey, situation: Situation) -> list[Reason]:
    found = []
    for fragment in situation.job.active:
        stay = situation.stays[fragment.id]
        for name in sorted(fragment.nodes, key=natural):
            hole = survey.holes.get(name)
            if stay.leaves is not None:
                text = f"{name} is given back: {stay.leaves.value}{_by(hole)}"
                found.append(Reason(Why.GIVEN_BACK, text))
            elif hole is not None and hole.source is not HoleEnd.NOBODY:
                text = f"{name} may be used until {_time(hole, survey.ground.now)}{_by(hole)}"
                found.append(Reason(Why.HOLE_ENDS, text))
    for f in situation.job.fragments:
        if f.is_leaving and f.state is FragmentState.RUNNING:
            text = f"fragment {f.id} was asked to leave {', '.join(sorted(f.nodes))}"
            found.append(Reason(Why.LEAVING, text))
    return found


def _by(hole: Optional[Hole]) -> str:
    if hole is None or hole.source is HoleEnd.NOBODY:
        return ""
    return f" ({hole.source.value}: {hole.by})"


def _time(hole: Hole, now: datetime) -> str:
    return shown(hole.end, now) if hole.end else "further notice"
