"""Why a job has the size it has: one line for each thing that limits or awaits it."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from slurm_hooks.core.classes import Ground, misfit, natural
from slurm_hooks.core.leases import Stay
from slurm_hooks.core.lifecycle import Upkeep
from slurm_hooks.model import Fragment, FragmentState, Hole, HoleEnd, MalleableJob, NodeState
from slurm_hooks.settings import Settings


class Situation(Protocol):
    """What is known of a job in this tick."""

    @property
    def job(self) -> MalleableJob: ...
    @property
    def upkeep(self) -> Upkeep: ...
    @property
    def stays(self) -> dict[Fragment, Stay]: ...
    @property
    def snoozes(self) -> bool: ...
    @property
    def reachable(self) -> int: ...


def reasons_for(
    case: Situation, planned: int, ground: Ground, holes: dict[str, Hole], settings: Settings
) -> tuple[str, ...]:
    """Lines for people, the most important first."""
    lines = list(case.upkeep.reasons)
    if case.upkeep.is_over:
        return tuple(lines)
    lines += _leaving(case, holes)
    request = case.job.request
    if planned >= request.max_nodes:
        lines.append(f"has its maximum of {request.max_nodes} nodes")
        return tuple(lines)
    if case.snoozes:
        lines.append(f"shrank less than {settings.plan.snooze_s:g} s ago and does not grow yet")
    if case.reachable < request.min_nodes:
        lines.append(
            f"can reach {case.reachable} nodes now, needs {request.min_nodes}: "
            "waits for its other fragments to come back"
        )
    return tuple(lines + _nodes(case, ground, holes))


def _leaving(case: Situation, holes: dict[str, Hole]) -> list[str]:
    lines = []
    for fragment, stay in case.stays.items():
        for name in sorted(fragment.nodes, key=natural):
            hole = holes.get(name)
            if stay.leaves is not None:
                lines.append(f"{name} is given back: {stay.leaves.value}{_by(hole)}")
            elif hole is not None and hole.source is not HoleEnd.NOBODY:
                lines.append(f"{name} is ours until {_time(hole)}{_by(hole)}")
    gone = [f for f in case.job.fragments if f.is_leaving and f.state is FragmentState.RUNNING]
    lines += [f"fragment {f.id} was asked to leave {', '.join(sorted(f.nodes))}" for f in gone]
    return lines


def _by(hole: Hole | None) -> str:
    if hole is None or hole.source is HoleEnd.NOBODY:
        return ""
    return f" ({hole.source.value}: {hole.by})"


def _time(hole: Hole) -> str:
    return f"{hole.end:%H:%M:%S}" if hole.end else "further notice"


def _nodes(case: Situation, ground: Ground, holes: dict[str, Hole]) -> list[str]:
    """What stands in the way on the nodes that it does not have, alike ones counted together."""
    mine = frozenset(n for f in case.job.fragments for n in f.nodes if f.state in _ON_NODES)
    counted: Counter[str] = Counter()
    for node in ground.nodes.values():
        if case.job.partition not in node.partitions or node.name in mine:
            continue
        if node.state is not NodeState.FREE:
            counted[f"{node.state.value}"] += 1
            continue
        why = misfit(ground, case.job, node.name)
        counted[f"free, but {why}{_by(holes[node.name])}" if why else "free and usable"] += 1
    return [f"{count} other node(s): {what}" for what, count in sorted(counted.items())]


_ON_NODES = (FragmentState.PENDING, FragmentState.RUNNING, FragmentState.ENDING)
