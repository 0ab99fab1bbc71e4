"""Why a job has the size it has: one line for each thing that limits or awaits it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Optional, Protocol

from slurm_hooks.model import (
    ON_NODES,
    FragmentId,
    FragmentState,
    Hole,
    HoleEnd,
    MalleableJob,
    NodeState,
)
from slurm_hooks.planning.leases import Stay
from slurm_hooks.planning.lifecycle import Upkeep
from slurm_hooks.planning.node_classes import Ground, natural
from slurm_hooks.planning.suits import Suits
from slurm_hooks.settings import Settings


class Situation(Protocol):
    """What is known of a job in this tick."""

    @property
    def job(self) -> MalleableJob: ...
    @property
    def upkeep(self) -> Upkeep: ...
    @property
    def stays(self) -> dict[FragmentId, Stay]: ...
    @property
    def snoozes(self) -> bool: ...
    @property
    def is_apart(self) -> bool: ...
    @property
    def least(self) -> int: ...
    @property
    def reachable(self) -> int: ...


class Obstacles:
    """What stands in the way on the nodes that a job does not have, alike ones counted together.

    Nodes and jobs that are alike are looked at once, whatever their number.
    """

    def __init__(self, ground: Ground, suits: Suits, holes: Mapping[str, Hole]) -> None:
        self._suits, self.holes = suits, holes
        self._ground = ground
        self._counts: dict[object, Counter[str]] = {}

    def lines(self, job: MalleableJob) -> list[str]:
        """The lines for one job."""
        key = self._suits.likeness(job.job_id)
        if key not in self._counts:
            names = self._ground.nodes
            self._counts[key] = Counter(self._label(name, job, key) for name in names)
        counted = Counter(self._counts[key])
        mine = {n for f in job.fragments if f.state in ON_NODES for n in f.nodes}
        for name in mine & self._ground.nodes.keys():
            counted[self._label(name, job, key)] -= 1
        for name in self._suits.shunned(job.job_id).keys() - mine:
            if name in self._ground.nodes:
                counted[self._label(name, job, key)] -= 1
                counted[self._label(name, job, None)] += 1
        return [
            f"{n} other node(s): {what}" for what, n in sorted(counted.items()) if what and n > 0
        ]

    def _label(self, name: str, job: MalleableJob, kind: object) -> str:
        """What to say of a node to all jobs of a kind, or to this one; nothing outside of its
        partition."""
        node = self._ground.nodes[name]
        if job.partition not in node.partitions:
            return ""
        if node.state is not NodeState.FREE:
            return str(node.state.value)
        suits = self._suits
        why = suits.misfit(name, job.job_id) if kind is None else suits.misfit_of_kind(name, kind)
        return f"free, but {why}{_by(self.holes[name])}" if why else "free and usable"


def reasons_for(
    case: Situation, planned: int, obstacles: Obstacles, settings: Settings
) -> tuple[str, ...]:
    """Lines for people, the most important first."""
    lines = list(case.upkeep.reasons)
    if case.upkeep.is_over:
        return tuple(lines)
    lines += _leaving(case, obstacles.holes)
    request = case.job.request
    if case.is_apart:
        lines.append(
            f"no fragment has joined a round within {settings.failures.join_s} s: the script does "
            "not start torchrun, or Slurm's commands are missing where it runs; several fragments "
            "would each train on their own, so it is kept to one"
        )
        return tuple(lines)
    if planned >= request.max_nodes:
        lines.append(f"has its maximum of {request.max_nodes} nodes")
        return tuple(lines)
    if case.snoozes:
        lines.append(
            f"shrank or failed less than {settings.plan.snooze_s:g} s ago and does not grow yet"
        )
    if case.reachable < request.min_nodes and not case.snoozes and not case.upkeep.reasons:
        lines.append(
            f"can reach {case.reachable} nodes now, needs {request.min_nodes}: "
            "waits for its other fragments to come back"
        )
    return (*lines, *obstacles.lines(case.job))


def _leaving(case: Situation, holes: Mapping[str, Hole]) -> list[str]:
    lines = []
    for fragment in case.job.active:
        stay = case.stays[fragment.id]
        for name in sorted(fragment.nodes, key=natural):
            hole = holes.get(name)
            if stay.leaves is not None:
                lines.append(f"{name} is given back: {stay.leaves.value}{_by(hole)}")
            elif hole is not None and hole.source is not HoleEnd.NOBODY:
                lines.append(f"{name} is ours until {_time(hole)}{_by(hole)}")
    gone = [f for f in case.job.fragments if f.is_leaving and f.state is FragmentState.RUNNING]
    lines += [f"fragment {f.id} was asked to leave {', '.join(sorted(f.nodes))}" for f in gone]
    return lines


def _by(hole: Optional[Hole]) -> str:
    if hole is None or hole.source is HoleEnd.NOBODY:
        return ""
    return f" ({hole.source.value}: {hole.by})"


def _time(hole: Hole) -> str:
    return f"{hole.end:%H:%M:%S}" if hole.end else "further notice"
