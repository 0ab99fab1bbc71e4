"""Why a job has the size it has: one line for each thing that limits or awaits it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Optional

from slurm_hooks.model import ON_NODES, FragmentState, Hole, HoleEnd, MalleableJob, NodeState
from slurm_hooks.planning.eligibility import Eligibility
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.node_classes import natural
from slurm_hooks.planning.situation import Situation
from slurm_hooks.settings import Settings


class Obstacles:
    """What stands in the way on the nodes that a job does not have, alike ones counted together.

    Nodes and jobs that are alike are looked at once, whatever their number.
    """

    def __init__(self, ground: Ground, eligibility: Eligibility, given: int) -> None:
        """`given` nodes go to all jobs together."""
        self.holes = ground.holes
        self._ground, self._eligibility, self._given = ground, eligibility, given
        self._counts: dict[object, Counter[str]] = {}

    def lines(self, job: MalleableJob) -> list[str]:
        """The lines for one job."""
        key = self._eligibility.likeness(job.job_id)
        if key not in self._counts:
            names = self._ground.nodes
            self._counts[key] = Counter(self._label(name, job, key) for name in names)
        counted = Counter(self._counts[key])
        mine = {n for f in job.fragments if f.state in ON_NODES for n in f.nodes}
        for name in mine & self._ground.nodes.keys():
            counted[self._label(name, job, key)] -= 1
        for name in self._eligibility.shunned(job.job_id).keys() - mine:
            if name in self._ground.nodes:
                counted[self._label(name, job, key)] -= 1
                counted[self._label(name, job, None)] += 1
        return [
            f"{n} other node(s): {what}" for what, n in sorted(counted.items()) if what and n > 0
        ]

    def ceiling_lines(self, situation: Situation) -> list[str]:
        """A line if the site's ceiling is what keeps a job from growing."""
        ceiling, request = self._ground.mandate.ceiling, situation.job.request
        if ceiling is None:
            return []
        limit = (
            f"all malleable jobs together may have {ceiling} node(s) (mode.max_nodes, max_share)"
        )
        if situation.least > ceiling:
            return [f"{limit}, and this one needs {situation.least}: it cannot start"]
        is_full = self._given + request.unit > ceiling
        return [f"{limit}, and get {self._given}"] if is_full else []

    def _label(self, name: str, job: MalleableJob, kind: object) -> str:
        """What to say of a node to all jobs of a kind, or to this one; nothing outside of its
        partition."""
        node = self._ground.nodes[name]
        if job.partition not in node.partitions:
            return ""
        if node.state is not NodeState.FREE:
            return str(node.state.value)
        nodes = self._eligibility
        is_own = kind is None
        why = nodes.why_not(name, job.job_id) if is_own else nodes.why_not_for_kind(name, kind)
        return f"free, but {why}{_by(self.holes[name])}" if why else "free and usable"


def reasons_for(
    situation: Situation, planned: int, obstacles: Obstacles, settings: Settings
) -> tuple[str, ...]:
    """Lines for people, the most important first."""
    care = situation.upkeep
    lines = list(care.reasons)
    if care.is_over:
        return tuple(lines)
    lines += _leaving(situation, obstacles.holes)
    if situation.barred:
        return tuple(lines)
    request = situation.job.request
    if situation.is_apart:
        lines.append(
            f"no fragment has joined a round within {settings.failures.join_s} s: the script does "
            "not start torchrun, or Slurm's commands are missing where it runs; several fragments "
            "would each train on their own, so it is kept to one"
        )
        return tuple(lines)
    if planned >= request.max_nodes:
        lines.append(f"has its maximum of {request.max_nodes} nodes")
        return tuple(lines)
    if situation.snoozes:
        lines.append(
            f"shrank or failed less than {settings.plan.snooze_s:g} s ago and does not grow yet"
        )
    if situation.reachable < request.min_nodes and not (situation.snoozes or care.reasons):
        lines.append(
            f"can reach {situation.reachable} nodes now, needs {request.min_nodes}: "
            "waits for its other fragments to come back"
        )
    return (*lines, *obstacles.ceiling_lines(situation), *obstacles.lines(situation.job))


def _leaving(situation: Situation, holes: Mapping[str, Hole]) -> list[str]:
    lines = []
    for fragment in situation.job.active:
        stay = situation.stays[fragment.id]
        for name in sorted(fragment.nodes, key=natural):
            hole = holes.get(name)
            if stay.leaves is not None:
                lines.append(f"{name} is given back: {stay.leaves.value}{_by(hole)}")
            elif hole is not None and hole.source is not HoleEnd.NOBODY:
                lines.append(f"{name} may be used until {_time(hole)}{_by(hole)}")
    gone = [f for f in situation.job.fragments if f.is_leaving and f.state is FragmentState.RUNNING]
    lines += [f"fragment {f.id} was asked to leave {', '.join(sorted(f.nodes))}" for f in gone]
    return lines


def _by(hole: Optional[Hole]) -> str:
    if hole is None or hole.source is HoleEnd.NOBODY:
        return ""
    return f" ({hole.source.value}: {hole.by})"


def _time(hole: Hole) -> str:
    return f"{hole.end:%H:%M:%S}" if hole.end else "further notice"
