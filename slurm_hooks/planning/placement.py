"""From counts to names: which fragment leaves, which starts, and on which nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import nsmallest

from slurm_hooks.model import (
    Fragment,
    FragmentId,
    FragmentState,
    Intent,
    MalleableJob,
    Said,
    Verb,
    Why,
)
from slurm_hooks.planning.holes import lease_within
from slurm_hooks.planning.node_classes import ClassKey, Pool
from slurm_hooks.planning.situation import Situation
from slurm_hooks.planning.survey import Survey


@dataclass(frozen=True)
class Change:
    """The intents for one job, and the fragments that go."""

    actions: tuple[Intent, ...] = ()
    going: frozenset[FragmentId] = frozenset()


def change(
    survey: Survey, situation: Situation, targets: Mapping[ClassKey, int], pool: Pool
) -> Change:
    """Intents that bring a job from what it holds to `targets` nodes in each class.

    Takes the nodes that it hands out from the pool, so that no node is given twice. Nodes that
    another job still holds come in a later tick, as do those for which there is no room under the
    ceiling yet, and a gang does not start with less than its minimum.
    """
    job = situation.job
    unit, size = job.request.unit, sum(len(f.nodes) for f in _held(job, pool))
    cause = _cause(situation, size, sum(targets.values()), pool)
    is_in_vain = pool.is_closed and cause in (Why.BETTER_USE, Why.BELOW_MIN)
    going = [] if is_in_vain else _leavers(job, targets, pool)
    actions: list[Intent] = [_dismiss(situation, f, cause, survey.ground.now) for f in going]
    where = _openings(job, targets, pool)
    starting = list(zip(nsmallest(len(where), situation.upkeep.growable, key=_order), where))
    if size + unit * len(starting) >= situation.least:
        actions += [_grow(survey, f, situation, _take(pool, key, unit)) for f, key in starting]
    return Change(tuple(actions), frozenset(f.id for f in going))


def _cause(situation: Situation, size: int, target: int, pool: Pool) -> Why:
    """Why it goes from this size to a smaller one."""
    if pool.is_over:
        return Why.CEILING
    if situation.wish is not None and size > situation.most:
        return Why.WISH
    is_enough = size >= situation.least  # then others take all of it
    is_below = situation.job.way.needs_min and not (target or is_enough)
    return Why.BELOW_MIN if is_below else Why.BETTER_USE


def _held(job: MalleableJob, pool: Pool) -> list[Fragment]:
    return [f for by_job in pool.held.values() for f in by_job.get(job.job_id, [])]


def _openings(job: MalleableJob, targets: Mapping[ClassKey, int], pool: Pool) -> list[ClassKey]:
    """The class of each fragment that can start now, as far as free nodes go."""
    found: list[ClassKey] = []
    for key, target in sorted(targets.items()):
        held = pool.held.get(key, {}).get(job.job_id, [])
        missing = target - sum(len(f.nodes) for f in held)
        nodes = min(missing, len(pool.free.get(key, ())))
        found += [key] * (max(nodes, 0) // job.request.unit)
    return found if pool.room is None else found[: pool.room // job.request.unit]


def _leavers(job: MalleableJob, targets: Mapping[ClassKey, int], pool: Pool) -> list[Fragment]:
    """Fragments beyond the target of their class: not yet started first, then those with the
    shortest lease, in a pool the youngest."""
    going: list[Fragment] = []
    rank = _usefulness if job.way.works_as_one else _age
    for key, by_job in sorted(pool.held.items()):
        held = by_job.get(job.job_id, [])
        surplus = sum(len(f.nodes) for f in held) - targets.get(key, 0)
        for fragment in sorted(held, key=rank):
            if surplus <= 0:
                break
            going.append(fragment)
            surplus -= len(fragment.nodes)
    return going


def _order(fragment: Fragment) -> tuple[bool, FragmentId]:
    """In which fragments start. What one said of its last run is known until it runs again; that
    nodes share no directory is to be known for as long as the job lives."""
    return (fragment.said is Said.APART, fragment.id)


def _usefulness(fragment: Fragment) -> tuple[bool, float, int]:
    """One that has given up, since others train, is of no use."""
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


def _take(pool: Pool, key: ClassKey, count: int) -> list[str]:
    free = pool.free[key]
    taken = [free.popleft() for _ in range(count)]
    pool.room = None if pool.room is None else pool.room - count
    return taken


def _grow(survey: Survey, fragment: Fragment, situation: Situation, nodes: list[str]) -> Intent:
    ground = survey.ground
    last = survey.ends.until if situation.gains_past else survey.ends.latest
    latest = min((e for name in nodes if (e := last[name]) is not None), default=None)
    longest = min(situation.job.request.lease, ground.longest_lease)
    limit = lease_within(ground.now, latest, longest)
    mark = replace(
        situation.mark_of(fragment),
        released=ground.now,
        run=fragment.restarts,
        noticed=None,
        gave_way_to="",
        idle=None,
    )
    return Intent(
        fragment.id, Why.HOLE_OPEN, Verb.GROW, mark=mark, nodes=frozenset(nodes), limit=limit
    )
