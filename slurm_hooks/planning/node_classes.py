"""From single nodes to classes: nodes that are alike for the allocator are counted together.

Two nodes are alike if the same jobs could use them and their holes end in the same look-ahead
period. Which of them a job gets is decided afterwards, by name.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Optional

from slurm_hooks.model import Fragment, FragmentState, NodeState
from slurm_hooks.planning.eligibility import Eligibility
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.holes import MINUTE
from slurm_hooks.planning.modes import Mandate
from slurm_hooks.planning.situation import Situation
from slurm_hooks.planning.survey import Survey


@dataclass(frozen=True, order=True)
class ClassKey:
    """Seconds for which the nodes stay open, and the jobs that may use them."""

    open_s: float
    jobs: tuple[int, ...]


@dataclass
class Pool:
    """Nodes that could be handed out or kept, by class.

    `free` lists free nodes, longest hole first; `held` the fragments of each job in each class;
    `coming` counts the nodes that fragments are about to leave, which can be had in a later tick.
    Under a ceiling, `ceiling` is how many of all these may be given, `room` how many now: what is
    still on its way out takes up room, and while nodes are registering there is none. It `is_over`
    if more is held than may be given, and `is_closed` if nothing may start: then nobody makes room.
    """

    free: dict[ClassKey, deque[str]] = field(default_factory=dict)
    held: dict[ClassKey, dict[int, list[Fragment]]] = field(default_factory=dict)
    coming: Counter[ClassKey] = field(default_factory=Counter)
    ceiling: Optional[int] = None
    room: Optional[int] = None
    is_over: bool = False
    is_closed: bool = False

    @property
    def keys(self) -> list[ClassKey]:
        """All classes, in a fixed order."""
        return sorted(self.free.keys() | self.held.keys() | self.coming.keys())

    @property
    def size(self) -> int:
        """The held nodes of all classes."""
        rows = (f for by_job in self.held.values() for found in by_job.values() for f in found)
        return sum(len(f.nodes) for f in rows)

    def capacity(self, key: ClassKey) -> int:
        """Free, held and coming nodes of a class."""
        held = (f for found in self.held.get(key, {}).values() for f in found)
        return len(self.free.get(key, ())) + sum(len(f.nodes) for f in held) + self.coming[key]

    def keep_free(self, headroom: int, targets: Mapping[int, Mapping[ClassKey, int]]) -> None:
        """Give no more now than the free nodes beyond the headroom, and as many as are given back:
        what is still on its way out does not make up for it. `targets` are nodes by job id."""
        if not headroom:
            return
        free = max(0, sum(map(len, self.free.values())) - headroom)
        for key, by_job in self.held.items():
            for job_id, found in by_job.items():
                size = sum(len(f.nodes) for f in found)
                free += max(0, size - targets.get(job_id, {}).get(key, 0))
        self.room = free if self.room is None else min(self.room, free)


def pool_of(survey: Survey, eligibility: Eligibility, situations: Sequence[Situation]) -> Pool:
    """All free nodes, and those that jobs may keep.

    For fragments that stay past planned starts, and where a job may gain the node that would, only
    reservations close it: planned starts move.
    """
    pool, kept = Pool(), 0
    ends, now = survey.ends, survey.ground.now
    fleeing, staying = _SecondsOpen(now, ends.latest), _SecondsOpen(now, ends.walls)
    gains_past = {s.job.job_id for s in situations if s.gains_past}
    for situation in sorted(situations, key=lambda situation: situation.job.job_id):
        stay = situation.staying if situation.is_placed else ()
        known = [f for f in stay if f.nodes and f.nodes <= survey.nodes.keys()]
        kept += kept_by(situation) - sum(len(f.nodes) for f in known)
        for fragment in known:
            seconds = staying if situation.stays_past(fragment) else fleeing
            worst = min(fragment.nodes, key=lambda name: (seconds[name], name))
            key = _key(survey.ground, seconds[worst], eligibility.jobs(worst))
            pool.held.setdefault(key, {}).setdefault(situation.job.job_id, []).append(fragment)
    free: dict[ClassKey, list[str]] = {}
    going = {name for s in situations for name in _going(s)}
    for name, node in survey.nodes.items():
        is_coming = name in going and node.state is NodeState.BUSY
        room = eligibility.room(name)
        jobs = eligibility.jobs(name) if room or is_coming else ()
        if not jobs:
            continue
        seconds = fleeing if gains_past.isdisjoint(jobs) else staying
        key = _key(survey.ground, seconds[name], jobs)
        if room:
            free.setdefault(key, []).append(name)
        else:
            pool.coming[key] += 1
    for key, names in free.items():
        pool.free[key] = deque(sorted(names, key=lambda name: (-fleeing[name], natural(name))))
    _limit(pool, survey.mandate, kept, len(eligibility.taken))
    return pool


def _going(situation: Situation) -> Iterator[str]:
    """The nodes of fragments that were asked to leave by an earlier tick: whoever waits for these
    needs no others, and what has come free of them is not given to somebody else."""
    for f in situation.job.stirring:
        if f.is_leaving and f.state in (FragmentState.RUNNING, FragmentState.ENDING):
            yield from f.nodes


_STUCK = (FragmentState.SUSPENDED, FragmentState.UNKNOWN)


def kept_by(situation: Situation) -> int:
    """The nodes that the job goes on having, as far as is known."""
    stuck = (f for f in situation.job.stirring if f.state in _STUCK)
    return situation.size + sum(len(f.nodes) for f in stuck)


def _limit(pool: Pool, mandate: Mandate, kept: int, taken: int) -> None:
    """Put the pool under what holds for all jobs. `kept` nodes are out of the allocator's hands,
    `taken` have a fragment on them or on its way."""
    if mandate.ceiling is not None:
        size = pool.size
        most_kept = size if mandate.most_kept is None else mandate.most_kept - kept
        pool.ceiling = max(0, mandate.ceiling - kept, min(size, most_kept))
        pool.room = max(0, mandate.ceiling - taken)
        pool.is_over = size > pool.ceiling
    if mandate.registering:
        pool.is_closed, pool.room = True, 0


def _key(ground: Ground, seconds: float, jobs: tuple[int, ...]) -> ClassKey:
    return ClassKey(math.inf if seconds >= ground.horizon.total_seconds() else seconds, jobs)


class _SecondsOpen(dict[str, float]):
    """Whole minutes to the last moment of each node that is asked for, in seconds; infinite if
    there is none. Most nodes of a machine are not asked for."""

    def __init__(self, now: datetime, last: Mapping[str, Optional[datetime]]) -> None:
        self._now, self._last = now, last

    def __missing__(self, name: str) -> float:
        last = self._last[name]
        self[name] = math.inf if last is None else max((last - self._now) // MINUTE, 0) * 60.0
        return self[name]


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sorting key by which n9 comes before n10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts)
