"""Turns counts into names: which fragment leaves, which starts, and on which nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import nsmallest
from typing import NamedTuple

from slurm_hooks.model import (
    NOT_LAUNCHED,
    NOT_MOVED,
    AvoidedNode,
    Fragment,
    FragmentId,
    FragmentState,
    Intent,
    MalleableJob,
    Resources,
    Said,
    Verb,
    Why,
)
from slurm_hooks.planning.holes import lease_within
from slurm_hooks.planning.nearness import Room, take_near
from slurm_hooks.planning.node_classes import ClassKey, Pool
from slurm_hooks.planning.situation import Situation
from slurm_hooks.planning.survey import Survey


@dataclass(frozen=True)
class Change:
    """The intents for a job, and the fragments that leave."""

    actions: tuple[Intent, ...] = ()
    going: frozenset[FragmentId] = frozenset()

    def size_of(self, situation: Situation) -> int:
        """The size that the job will have."""
        grown = sum(i.size for i in self.actions if i.verb is Verb.GROW)
        lost = sum(f.size for f in situation.job.fragments if f.id in self.going)
        return situation.size + grown - lost


def change(
    survey: Survey, situation: Situation, targets: Mapping[ClassKey, int], pool: Pool
) -> Change:
    """Return the intents that bring a job from its present units to `targets` units in each class.

    The nodes leave the pool, so that no node is given twice. Nodes that another job still holds
    come in a later tick, as do nodes for which the ceiling has no room yet. A gang takes only the
    nodes that bring it to an allowed size, and gives back the rest.
    """
    job, held = situation.job, _held(situation.job, pool)
    size, units = situation.core + sum(f.size for f in held), pool.units(job)
    target = situation.core + sum(targets.values()) // units
    cause = _cause(situation, size, target, pool)
    is_in_vain = pool.is_closed and cause in (Why.BETTER_USE, Why.BELOW_MIN, Why.SIZE)
    openings = _openings(situation, targets, pool)[: len(situation.upkeep.growable)]
    starting = _fitting(situation, size, openings, units)
    going = [] if is_in_vain else _leavers(situation, targets, pool)
    if not (is_in_vain or starting):
        going = _to_size(situation, held, going)
    actions: list[Intent] = [_dismiss(situation, f, cause, survey.ground.now) for f in going]
    if starting:
        names = _take(survey, situation, pool, starting, going)
        actions += _grows(survey, situation, list(zip(starting, names)), units)
    return Change(tuple(actions), frozenset(f.id for f in going))


class _Opening(NamedTuple):
    """Room for a fragment in a class: the free units on each node, and the units taken in all."""

    key: ClassKey
    free: int
    taken: int


def _cause(situation: Situation, size: int, target: int, pool: Pool) -> Why:
    """Say why the job shrinks from this size to a smaller size."""
    if pool.is_above or (situation.cap and size > situation.cap.size):
        return Why.CEILING
    if situation.wish is not None and size > situation.most:
        return Why.WISH
    is_enough = size >= situation.least  # if so, others take all its nodes
    if situation.job.way.needs_min and not (target or is_enough):
        return Why.BELOW_MIN
    return Why.SIZE if is_enough and situation.settled(size) != size else Why.BETTER_USE


def _held(job: MalleableJob, pool: Pool) -> list[Fragment]:
    return [f for fragments in pool.held_by.get(job.job_id, {}).values() for f in fragments]


def _openings(situation: Situation, targets: Mapping[ClassKey, int], pool: Pool) -> list[_Opening]:
    """The units that each fragment could take now, as far as free nodes suffice.

    For a job that counts slots, the largest come first.
    """
    job, openings = situation.job, []
    unit, held = job.request.unit, pool.held_by.get(job.job_id, {})
    room = pool.room
    for key, target in sorted(targets.items()):
        missing = target - pool.size(held.get(key, ()))
        missing = missing if room is None else min(missing, room)
        stock = pool.free.get(key)
        if stock is None or missing <= 0:
            continue
        if situation.share is None:
            each = unit * pool.per_node
            fragments = min(missing, stock.nodes(pool.per_node) * pool.per_node) // each
            parts = [(pool.per_node, each)] * fragments
        else:
            parts = stock.parts(missing, unit)
        openings += [_Opening(key, count, taken) for count, taken in parts]
        room = None if room is None else room - sum(taken for _, taken in parts)
    is_whole = situation.share is None
    return openings if is_whole else sorted(openings, key=lambda opening: -opening.taken)


def _fitting(
    situation: Situation, size: int, openings: Sequence[_Opening], units: int
) -> list[_Opening]:
    """The openings that bring a job to the largest allowed size. Empty if it cannot grow."""
    most = size + sum(opening.taken for opening in openings) // units
    left, fitting = (situation.settled(most) - size) * units, []
    for opening in openings:
        if left <= 0:
            break
        fitting.append(opening._replace(taken=min(opening.taken, left)))
        left -= opening.taken
    return fitting


def _to_size(
    situation: Situation, held: Sequence[Fragment], going: list[Fragment]
) -> list[Fragment]:
    """The fragments that leave, and as many more as bring the job to an allowed size.

    The most useful fragments stay. A job with too little for any size waits for the others.
    """
    staying = [f for f in held if f not in going]
    core = situation.core
    size = core + sum(f.size for f in staying)
    if situation.sizes is None or size < situation.least or situation.settled(size) == size:
        return going
    reached: dict[int, tuple[int, Fragment]] = {}  # by size: the size without its last fragment
    for fragment in sorted(staying, key=_usefulness, reverse=True):
        for before in (0, *reached):
            reached.setdefault(before + fragment.size, (before, fragment))
    fine = (n for n in reached if situation.settled(core + n) == core + n)
    kept, left = set(), max(fine, default=0)
    while left:
        left, fragment = reached[left]
        kept.add(fragment.id)
    return [*going, *(f for f in staying if f.id not in kept)]


def _leavers(situation: Situation, targets: Mapping[ClassKey, int], pool: Pool) -> list[Fragment]:
    """The fragments beyond the target of their class.

    Fragments that have not started leave first. Then the shortest lease leaves, in a pool the
    youngest fragment. A fragment of many slots may exceed the surplus. The job keeps it if it would
    fall below its least.
    """
    job, going = situation.job, []
    rank = _usefulness if job.way.works_as_one else _age
    left = situation.core + sum(f.size for f in _held(job, pool))
    for key, held in pool.held_by.get(job.job_id, {}).items():
        surplus = pool.size(held) - targets.get(key, 0)
        for fragment in sorted(held, key=lambda f: (pool.size([f]) > surplus, rank(f))):
            if surplus <= 0:
                break
            is_needed = left - fragment.size < situation.least
            if situation.share is not None and is_needed and any(targets.values()):
                continue
            going.append(fragment)
            surplus -= pool.size([fragment])
            left -= fragment.size
    return going


def _order(fragment: Fragment) -> tuple[bool, FragmentId]:
    """Sort fragments for their start.

    The words of a last run are known until the next run. So a fragment that found no shared
    directory starts last, since its job needs to remember that as long as it lives.
    """
    return (fragment.said is Said.APART, fragment.id)


def _usefulness(fragment: Fragment) -> tuple[bool, float, int]:
    """Sort by use. A fragment that has given up, since others train, has the least."""
    end = fragment.end.timestamp() if fragment.end else 0.0
    trains = fragment.state is FragmentState.RUNNING and fragment.said is not Said.APART
    return (trains, end, -fragment.id.index)


def _age(fragment: Fragment) -> tuple[bool, float, int]:
    start = fragment.start.timestamp() if fragment.start else 0.0
    return (fragment.state is FragmentState.RUNNING, -start, -fragment.id.index)


def _dismiss(situation: Situation, fragment: Fragment, cause: Why, now: datetime) -> Intent:
    if fragment.state is FragmentState.PENDING:
        return Intent(fragment.id, cause, is_held=True)
    return situation.notice(fragment, cause, now)


def _take(
    survey: Survey,
    situation: Situation,
    pool: Pool,
    openings: Sequence[_Opening],
    going: Sequence[Fragment],
) -> list[list[str]]:
    """The nodes of each opening, near the nodes that the job keeps."""
    nodes = situation.job.request.unit if situation.share is None else 1
    if pool.room is not None:
        pool.room -= sum(o.taken for o in openings)
    rooms = [Room(o.key, o.free, o.taken // nodes) for o in openings for _ in range(nodes)]
    kept = [f for f in situation.job.stirring if not (f.is_leaving or f in going)]
    own = Counter(hole.node.switch for f in kept for hole in survey.holes.of(f))
    names = take_near(pool, rooms, own, nodes)
    return [names[i : i + nodes] for i in range(0, len(names), nodes)]


def _grows(
    survey: Survey,
    situation: Situation,
    where: Sequence[tuple[_Opening, list[str]]],
    units: int,
) -> Iterator[Intent]:
    """Start a fragment for each opening.

    If the job counts slots, a fragment of the right size comes first, since a new size takes a
    command. A fragment that did not get its size is resized again.
    """
    first = nsmallest(len(where), situation.upkeep.growable, key=_order)
    if situation.share is None:
        yield from (_grow(survey, f, situation, names) for f, (_, names) in zip(first, where))
        return
    ready = sorted(situation.upkeep.growable, key=_order)
    later: list[tuple[list[str], int, Resources]] = []
    for opening, names in where:
        count = opening.taken // units
        asks = situation.share.slot.on(survey.holes[names[0]].node).times(count)
        fit = next((f for f in ready if _is_ready(f, asks)), None)
        if fit is None:
            later.append((names, count, asks))
            continue
        ready.remove(fit)
        yield _sized(survey, _grow(survey, fit, situation, names), (count, asks), False)
    for fragment, (names, count, asks) in zip(ready, later):
        yield _sized(survey, _grow(survey, fragment, situation, names), (count, asks), True)


def _is_ready(fragment: Fragment, asks: Resources) -> bool:
    """Tell whether Slurm certainly has the right size for it.

    26.05 forgets GPUs whose change it refused.
    """
    is_doubtful = fragment.mark.unfit or fragment.mark.vain
    return fragment.asks == asks and not is_doubtful


def _sized(survey: Survey, grow: Intent, size: tuple[int, Resources], is_resized: bool) -> Intent:
    assert grow.mark is not None
    (slots, asks), (name,) = size, grow.nodes
    lane = survey.holes.lane(survey.holes[name])
    lane, qos = ("", lane) if survey.ground.settings.site.parts_qos else (lane, grow.qos)
    mark = replace(grow.mark, slots=slots, qos=qos)
    return replace(grow, mark=mark, asks=asks, is_resized=is_resized, lane=lane, qos=qos)


def _grow(survey: Survey, fragment: Fragment, situation: Situation, nodes: list[str]) -> Intent:
    ground = survey.ground
    holes = [survey.holes[name] for name in nodes]
    ends = [hole.until if situation.gains_past else hole.latest for hole in holes]
    latest = min((end for end in ends if end is not None), default=None)
    longest = ground.lane(situation.job).lease_of(situation.job.request)
    limit = lease_within(ground.now, latest, longest)
    mark = situation.mark_of(fragment)
    if mark.obstacle == NOT_MOVED:  # it has been moved since
        mark = replace(mark, vain=0, obstacle="")
    if mark.obstacle == NOT_LAUNCHED:  # until it runs there
        others = (a for a in mark.unfit if a.node not in nodes)
        mark = replace(mark, unfit=(*others, *(AvoidedNode(n, ground.now) for n in sorted(nodes))))
    site, has_own = ground.settings.site, ground.gets_qos(fragment)
    mark = replace(
        mark,
        released=ground.now,
        run=fragment.restarts,
        noticed=None,
        gave_way_to="",
        idle=None,
        qos=site.qos if has_own else "",
    )
    return Intent(
        fragment.id,
        Why.HOLE_OPEN,
        Verb.GROW,
        mark=mark,
        nodes=frozenset(nodes),
        limit=limit,
        qos=site.qos if has_own else "",
        account=site.account if has_own else "",
    )
