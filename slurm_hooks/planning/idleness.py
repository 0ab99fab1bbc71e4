"""Why free nodes of the malleable partitions stay idle: one reason for each node, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from slurm_hooks.model import (
    ON_NODES,
    Action,
    Cause,
    Grow,
    IdleNodes,
    IdleReason,
    Level,
    NodeState,
)
from slurm_hooks.planning.dropping import handed_out
from slurm_hooks.planning.eligibility import HOLE_SHORT, Eligibility
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.situation import Situation


def idle_nodes(
    ground: Ground,
    eligibility: Eligibility,
    situations: Sequence[Situation],
    actions: Iterable[Action],
    partitions: Iterable[str],
) -> tuple[IdleNodes, ...]:
    """The free nodes that no fragment is on, by reason, in the order of the reasons."""
    given: Counter[int] = Counter()
    granted: set[str] = set()
    for action in actions:
        if isinstance(action, Grow):
            given[action.fragment.job_id] += len(action.nodes)
            granted |= action.nodes
    wanting = [s for s in situations if _wants_more(s, given[s.job.job_id])]
    ours, taken = frozenset(partitions), _taken(situations)
    judge = _Judge(ground, eligibility, wanting, len(taken | granted))
    free = (
        name
        for name, node in ground.nodes.items()
        if node.state is NodeState.FREE and name not in taken and node.partitions & ours
    )
    starting = handed_out(ground.mandate.level)
    found = Counter(starting if n in granted else judge.reason(n) for n in free)
    return tuple(IdleNodes(reason, found[reason]) for reason in IdleReason if found[reason])


def _wants_more(situation: Situation, given: int) -> bool:
    if situation.upkeep.is_over:
        return False
    most = situation.job.request.max_nodes if situation.is_apart else situation.most
    return situation.size + given < most


def _taken(situations: Iterable[Situation]) -> set[str]:
    fragments = (f for s in situations for f in s.job.fragments if f.state in ON_NODES)
    return {name for fragment in fragments for name in fragment.nodes}


class _Judge:
    """Reasons for nodes that nobody got; alike jobs are asked about once."""

    def __init__(
        self, ground: Ground, eligibility: Eligibility, wanting: Sequence[Situation], used: int
    ) -> None:
        """`used` nodes are taken or granted already."""
        self._ground, self._eligibility = ground, eligibility
        self._barred = {s.job.job_id for s in wanting if s.barred}
        self._makes_room = {s.job.job_id for s in wanting if s.barred is Cause.LIMIT}
        least = min((s.job.request.unit for s in wanting), default=1)
        ceiling = ground.mandate.ceiling
        self._is_full = ceiling is not None and used + least > ceiling
        self._wanting = {s.job.job_id for s in wanting}
        self._ready = {s.job.job_id for s in wanting if s.upkeep.growable and not s.snoozes}
        self._kinds = {eligibility.likeness(s.job.job_id) for s in wanting}

    def reason(self, name: str) -> IdleReason:
        """Why this free node was not handed out."""
        mandate = self._ground.mandate
        if mandate.level is Level.OFF:
            return IdleReason.OFF
        if not self._wanting:
            return IdleReason.NO_JOB
        if mandate.registering:
            return IdleReason.REGISTERING
        is_for_nobody = self._wanting == self._barred and not self._makes_room
        if is_for_nobody or mandate.bars_node(name):
            return IdleReason.CANARY
        if name in self._ground.suspects:
            return IdleReason.SUSPECT
        fitting = self._wanting.intersection(self._eligibility.jobs(name))
        if fitting and self._is_full:
            return IdleReason.CEILING
        if fitting and fitting <= self._barred:
            return IdleReason.LIMIT if fitting & self._makes_room else IdleReason.CANARY
        if fitting:
            return IdleReason.NOT_GIVEN if fitting & self._ready else IdleReason.RESTING
        faults = {self._eligibility.why_not_for_kind(name, kind) for kind in self._kinds}
        return IdleReason.HOLE_SHORT if HOLE_SHORT in faults else IdleReason.UNFIT
