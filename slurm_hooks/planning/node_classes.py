"""Turns single nodes into classes: nodes that are equal for the allocator are counted together.

Two nodes are equal if the same jobs could use them and their holes end in the same look-ahead
period. Placement decides afterwards, by name, which of them a job gets.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import chain
from typing import Optional

from slurm_hooks.model import (
    LIVE_STATES,
    Fragment,
    FragmentState,
    MalleableJob,
    Node,
    NodeState,
)
from slurm_hooks.planning.eligibility import Bidders, Eligibility
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.holes import MINUTE
from slurm_hooks.planning.modes import Mandate
from slurm_hooks.planning.situation import Situation
from slurm_hooks.planning.survey import Survey


@dataclass(frozen=True, order=True)
class ClassKey:
    """Seconds for which the nodes stay open, the jobs that may use them, and if they are shared."""

    open_s: float
    jobs: tuple[int, ...]
    is_shared: bool = False


class Stock:
    """The free units of the nodes of a class, longest hole first.

    Nodes with equally many free units are kept together. Among those, nodes that are open for
    equally long are grouped by switch.
    """

    def __init__(self, rooms: Iterable[tuple[Node, int, float]]) -> None:
        """Take nodes, their free units, and the seconds to the end of their holes."""
        self._numbers: Counter[int] = Counter()
        self._names: dict[int, dict[float, dict[str, deque[str]]]] = {}
        for node, units, open_s in rooms:
            self._add(node.name, units, open_s, node.switch)

    def _add(self, name: str, units: int, open_s: float, switch: str) -> None:
        self._numbers[units] += 1
        similar = self._names.setdefault(units, {}).setdefault(open_s, {})
        similar.setdefault(switch, deque()).append(name)

    def __len__(self) -> int:
        return sum(count * number for count, number in self._numbers.items())

    @property
    def units(self) -> dict[str, int]:
        """The free units of each node."""
        free: dict[str, int] = {}
        for count, by_hole in self._names.items():
            for by_switch in by_hole.values():
                free.update(dict.fromkeys(chain(*by_switch.values()), count))
        return free

    def nodes(self, units: int) -> int:
        """Count the nodes that have exactly so many units."""
        return self._numbers[units]

    def parts(self, units: int, step: int) -> list[tuple[int, int]]:
        """Get so many units, in steps, from as few nodes as possible.

        Return the free units of each node and the units taken of it. The last part comes from the
        node with the fewest free units.
        """
        parts: list[tuple[int, int]] = []
        left = {count: number for count, number in self._numbers.items() if count >= step}
        while units >= step and (sizes := [count for count, n in left.items() if n]):
            count = min((c for c in sizes if c >= units), default=max(sizes))
            taken = min(units, count) // step * step
            parts.append((count, taken))
            left[count] -= 1
            units -= taken
        return parts

    def by_switch(self, count: int) -> dict[str, int]:
        """Count by switch the nodes with the longest holes among the nodes with so many units."""
        longest = next(iter(self._names.get(count, {}).values()), {})
        return {switch: len(names) for switch, names in longest.items()}

    def take(self, count: int, taken: int, switch: str) -> str:
        """Take some units of a node with so many units on this switch, and return its name."""
        by_hole = self._names[count]
        open_s, longest = next(iter(by_hole.items()))
        name = longest[switch].popleft()
        if not longest[switch]:
            del longest[switch]
        if not longest:
            del by_hole[open_s]
        self._numbers[count] -= 1
        if taken < count:
            self._add(name, count - taken, open_s, switch)
        return name


@dataclass(frozen=True, eq=False)
class LeftToOthers:
    """The free units of nodes where some are left to the small jobs of others, and how many are."""

    units: Mapping[str, int]
    kept: int

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The nodes, in order."""
        return tuple(sorted(self.units, key=natural))


@dataclass
class Pool:
    """Nodes that could be handed out or kept, by class, in units.

    A node is 1 unit, or as many as it has slots if jobs count slots (`per_node`). `free` holds the
    free units, `held` the fragments of each job in each class. `coming` counts units that fragments
    are about to leave, for a later tick. Of a class, `kept_back` units are left to others' small
    jobs.

    Under a ceiling, `ceiling` units of all these may be given, and `room` units now. Fragments on
    their way out take up room, and while no fragment may start there is no room. The pool
    `is_above` if more is held than may be given. It `is_closed` if no fragment may start, and then
    no job makes room. `names` are its nodes.
    """

    free: dict[ClassKey, Stock] = field(default_factory=dict)
    held: dict[ClassKey, dict[int, list[Fragment]]] = field(default_factory=dict)
    coming: Counter[ClassKey] = field(default_factory=Counter)
    kept_back: Counter[ClassKey] = field(default_factory=Counter)
    ceiling: Optional[int] = None
    room: Optional[int] = None
    is_above: bool = False
    is_closed: bool = False
    per_node: int = 1
    names: set[str] = field(default_factory=set)
    _left: dict[object, LeftToOthers] = field(default_factory=dict)

    @cached_property
    def keys(self) -> list[ClassKey]:
        """All classes, in a fixed order, once the pool is filled."""
        return sorted(self.free.keys() | self.held.keys() | self.coming.keys())

    @cached_property
    def users(self) -> list[frozenset[int]]:
        """The jobs that may use each of `keys`."""
        return [frozenset(key.jobs) for key in self.keys]

    @cached_property
    def held_by(self) -> dict[int, dict[ClassKey, list[Fragment]]]:
        """The fragments of each job, by class in the order of `keys`, once the pool is filled."""
        by_job: dict[int, dict[ClassKey, list[Fragment]]] = {}
        for key in self.keys:
            for job_id, fragments in self.held.get(key, {}).items():
                by_job.setdefault(job_id, {})[key] = fragments
        return by_job

    @cached_property
    def _places(self) -> dict[ClassKey, int]:
        return {key: at for at, key in enumerate(self.keys)}

    def row(self, units: Mapping[ClassKey, int]) -> tuple[int, ...]:
        """The units of each of `keys`, mostly 0."""
        row = [0] * len(self.keys)
        for key, count in units.items():
            row[self._places[key]] = count
        return tuple(row)

    def units(self, job: MalleableJob) -> int:
        """The units in a node or slot of the job."""
        return self.per_node if job.request.slot is None else 1

    def size(self, fragments: Iterable[Fragment]) -> int:
        """The units of fragments."""
        return sum(_units(fragment, self.per_node) for fragment in fragments)

    @property
    def held_units(self) -> int:
        """The units of all held fragments."""
        rows = (
            f for by_job in self.held.values() for fragments in by_job.values() for f in fragments
        )
        return self.size(rows)

    def capacity(self, key: ClassKey) -> int:
        """Free, held and coming units of a class, without the units that are kept back."""
        held = (f for fragments in self.held.get(key, {}).values() for f in fragments)
        return self._all(key) + self.size(held) - self.kept_back[key]

    def _all(self, key: ClassKey) -> int:
        return len(self.free.get(key, ())) + self.coming[key]

    def left_to_others(self, job_id: int) -> LeftToOthers:
        """The free units of the nodes that the job could use, where some are kept back.

        The object stays the same until some units are taken. No unit comes back to a stock.
        """
        keys = [key for key, kept in self.kept_back.items() if kept and job_id in key.jobs]
        sizes = tuple((key, len(self.free.get(key, ()))) for key in keys)
        if sizes not in self._left:
            units = {
                n: c for key in keys if key in self.free for n, c in self.free[key].units.items()
            }
            kept = sum(min(self.kept_back[key], size) for key, size in sizes)
            self._left[sizes] = LeftToOthers(units, kept)
        return self._left[sizes]

    def keep_gpus(self, headroom: int, eligibility: Eligibility) -> None:
        """Leave so many GPUs of partly used nodes to others.

        They come in addition to GPUs that we cannot use. Classes with most free units come first.
        Fragments keep their GPUs.
        """
        shared = (key for key in self.keys if key.is_shared and eligibility.counts_gpus(key.jobs))
        for key in sorted(shared, key=lambda key: (-self._all(key), key)):
            kept = max(0, min(headroom, self._all(key)))
            self.kept_back[key] += kept
            headroom -= kept


def _units(fragment: Fragment, per_node: int) -> int:
    return fragment.size * (per_node if fragment.mark.request.slot is None else 1)


def pool_of(survey: Survey, eligibility: Eligibility, situations: Sequence[Situation]) -> Pool:
    """All free nodes, and the nodes that jobs may keep.

    Planned starts move. So only reservations close a node for fragments that stay past planned
    starts, and for jobs that may take such a node.
    """
    pool = Pool(per_node=eligibility.per_node)
    now, holes = survey.ground.now, survey.holes
    fleeing = _SecondsOpen(now, lambda name: holes[name].latest)
    staying = _SecondsOpen(now, lambda name: holes[name].wall)
    gains_past = {s.job.job_id for s in situations if s.gains_past}
    for situation in sorted(situations, key=lambda situation: situation.job.job_id):
        stay = situation.lent if situation.is_placed else ()
        known = [f for f in stay if f.nodes and f.nodes <= holes.keys()]
        for fragment in known:
            seconds = staying if situation.stays_past(fragment) else fleeing
            worst = min(fragment.nodes, key=lambda name: (seconds[name], name))
            jobs, _ = eligibility.successors(worst, fragment)
            key = _key(survey.ground, seconds[worst], jobs, holes[worst].is_shared)
            pool.names |= fragment.nodes
            pool.held.setdefault(key, {}).setdefault(situation.job.job_id, []).append(fragment)
    free: dict[ClassKey, dict[str, int]] = {}
    going: dict[str, list[Fragment]] = {}
    for name, leaver in ((n, f) for s in situations for f in _going(s) for n in f.nodes):
        going.setdefault(name, []).append(leaver)
    for name, hole in holes.items():
        leavers = [f for f in going.get(name, ()) if _is_coming(hole.node, f)]
        for bidders, is_free in _parts(eligibility, name, leavers):
            if not bidders.jobs:
                continue
            pool.names.add(name)
            seconds = fleeing if gains_past.isdisjoint(bidders.jobs) else staying
            key = _key(survey.ground, seconds[name], bidders.jobs, hole.is_shared)
            if is_free:
                free.setdefault(key, {})[name] = bidders.units
            else:
                pool.coming[key] += bidders.units
    for key, units in free.items():
        names = sorted(units, key=lambda name: (-fleeing[name], natural(name)))
        pool.free[key] = Stock((holes[n].node, units[n], fleeing[n]) for n in names)
    offered = {name for units in free.values() for name in units}
    shared = (hole for name, hole in holes.items() if name not in offered and hole.is_shared)
    spare = sum(hole.left.gpus for hole in shared)
    pool.keep_gpus(survey.ground.settings.plan.headroom_gpus - spare, eligibility)
    _limit(pool, survey.mandate, situations)
    return pool


def _is_coming(node: Node, leaver: Fragment) -> bool:
    is_part = leaver.mark.request.slot is not None
    return node.state is NodeState.BUSY or (is_part and node.state is NodeState.SHARED)


def _parts(
    eligibility: Eligibility, name: str, leavers: Iterable[Fragment]
) -> Iterator[tuple[Bidders, bool]]:
    """The free part of a node, and the parts that become free."""
    yield eligibility.bidders(name), True
    for leaver in leavers:
        yield eligibility.successors(name, leaver), False


def _going(situation: Situation) -> Iterator[Fragment]:
    """The fragments that an earlier tick asked to leave.

    A job that waits for their nodes needs no others, and their nodes are not given away.
    """
    for f in situation.job.stirring:
        if f.is_leaving and f.state in (FragmentState.RUNNING, FragmentState.ENDING):
            yield f


_STUCK = (FragmentState.SUSPENDED, FragmentState.UNKNOWN)


def kept_size(situation: Situation) -> int:
    """The size that the job keeps in holes, as far as is known."""
    stuck = (f for f in situation.job.stirring if f.state in _STUCK and not f.is_core)
    return situation.size - situation.core + sum(f.size for f in stuck)


def _limit(pool: Pool, mandate: Mandate, situations: Sequence[Situation]) -> None:
    """Put the pool under the ceiling of all jobs."""
    if mandate.ceiling is not None:
        size, ceiling = pool.held_units, mandate.ceiling * pool.per_node
        kept = sum(kept_size(s) * pool.units(s.job) for s in situations) - size
        live = (f for s in situations for f in s.job.stirring if f.state in LIVE_STATES)
        most = None if mandate.most_kept is None else mandate.most_kept * pool.per_node
        pool.ceiling = max(0, ceiling - kept, min(size, size if most is None else most - kept))
        pool.room = max(0, ceiling - pool.size(f for f in live if not f.is_core))
        pool.is_above = size > pool.ceiling
    if mandate.waits:
        pool.is_closed, pool.room = True, 0


def _key(ground: Ground, seconds: float, jobs: tuple[int, ...], is_shared: bool) -> ClassKey:
    is_long = seconds >= ground.horizon.total_seconds()
    return ClassKey(math.inf if is_long else seconds, jobs, is_shared)


class _SecondsOpen(dict[str, float]):
    """Whole minutes to the last moment of each node, in seconds. Infinite if it has no last moment.

    Values are computed on demand, since most nodes of a machine are not needed.
    """

    def __init__(self, now: datetime, last: Callable[[str], Optional[datetime]]) -> None:
        self._now, self._last = now, last

    def __missing__(self, name: str) -> float:
        last = self._last(name)
        self[name] = math.inf if last is None else max((last - self._now) // MINUTE, 0) * 60.0
        return self[name]


@lru_cache(maxsize=1 << 16)
def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sorting key by which n9 comes before n10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts)
