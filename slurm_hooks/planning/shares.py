"""Asks the allocator for each job, and returns how many nodes of each class the jobs get."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import compress, repeat
from operator import contains
from typing import Optional

from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.objectives import OBJECTIVES, JobFacts, Objective, Worth, weigh
from slurm_hooks.allocation.problem import (
    JobAsk,
    Limits,
    NodeClass,
    Problem,
    beside_core,
)
from slurm_hooks.model import FragmentState, MalleableJob, Solve
from slurm_hooks.planning.claims import Weighing, weighings, with_claims
from slurm_hooks.planning.eligibility import Eligibility
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.node_classes import ClassKey, Pool
from slurm_hooks.planning.situation import Situation


@dataclass(frozen=True)
class Shares:
    """The units of each class for each job that the allocator decides about, by job id.

    Classes from which a job gets no unit are left out. `faults` are lines about a site's objective
    that failed or returned nonsense. Jobs that are `beginning` ask only for their least, so that
    they report a rate there.
    """

    targets: Mapping[int, Mapping[ClassKey, int]]
    solve: Solve
    faults: tuple[str, ...]
    beginning: AbstractSet[int] = frozenset()


@dataclass(frozen=True)
class _Asking:
    """A job that asks for nodes, and the fault of its objective, if any."""

    job_id: int
    ask: JobAsk
    fault: str


def share_out(
    ground: Ground,
    eligibility: Eligibility,
    situations: Iterable[Situation],
    pool: Pool,
    objective: Optional[Objective],
    clock: Callable[[], float],
) -> Shares:
    """Ask the allocator about every job that is placed. `clock` only limits its search."""
    plan = ground.settings.plan
    placed = [situation for situation in situations if situation.is_placed]
    known = [situation.job.priority for situation in placed if situation.job.priority > 0]
    mean_priority = sum(known) / len(known) if known else 1.0
    weighed = objective or OBJECTIVES[plan.objective]
    weighings_of = _weighings(ground, eligibility, placed, pool)
    asking = [
        _asking(ground, situation, weighing, pool, (weighed, mean_priority))
        for situation, weighing in zip(placed, weighings_of)
    ]
    problem = Problem(
        jobs=with_claims(ground, placed, [each.ask for each in asking]),
        classes=tuple(NodeClass(pool.capacity(key), key.open_s) for key in pool.keys),
        horizon_s=plan.horizon_s,
        ceiling_nodes=pool.ceiling,
    )
    allocation = allocate(problem, limits=Limits(plan.solve_limit_s, plan.gap), clock=clock)
    targets = {
        each.job_id: dict(compress(zip(pool.keys, counts), counts))
        for each, counts in zip(asking, allocation.counts)
    }
    beginning = frozenset(s.job.job_id for s, w in zip(placed, weighings_of) if w.begins)
    faults = tuple(each.fault for each in asking if each.fault)
    return Shares(targets, allocation.solve, faults, beginning)


def _weighings(
    ground: Ground, eligibility: Eligibility, placed: Sequence[Situation], pool: Pool
) -> tuple[Weighing, ...]:
    """The weighing of each job. Jobs that count equally share the nodes that they can use.

    A processor is no part of a GPU's share, nor the other way round.
    """
    by_job: dict[int, Weighing] = {}
    for group in _by_kind(placed):
        ids = {s.job.job_id for s in group}
        nodes = eligibility.all_units(pool.names, frozenset(ids))
        nodes = nodes if pool.ceiling is None else min(nodes, pool.ceiling)
        units = [pool.units(s.job) for s in group]
        weighed = weighings(ground, group, nodes, units)
        by_job.update(zip((s.job.job_id for s in group), weighed))
    return tuple(by_job[s.job.job_id] for s in placed)


def _by_kind(placed: Sequence[Situation]) -> list[list[Situation]]:
    """Group the jobs: whole nodes and GPUs together, and processors by their number."""
    groups: dict[int, list[Situation]] = {}
    for situation in placed:
        slot = None if situation.share is None else situation.share.slot
        groups.setdefault(0 if slot is None or slot.gres else slot.cpus, []).append(situation)
    return list(groups.values())


def given(situations: Iterable[Situation], shares: Shares, pool: Pool) -> dict[int, int]:
    """The units of each job once it has its share, by job id."""
    without = (s for s in situations if s.job.job_id not in shares.targets)
    others = {s.job.job_id: (s.size - s.core) * pool.units(s.job) for s in without}
    return others | {job_id: sum(n.values()) for job_id, n in shares.targets.items()}


def _asking(
    ground: Ground,
    situation: Situation,
    weighing: Weighing,
    pool: Pool,
    by: tuple[Objective, float],
) -> _Asking:
    """Return a job's ask. `by` is the objective, and the mean priority."""
    job, request = situation.job, situation.job.request
    objective, mean_priority = by
    facts = JobFacts(
        name=str(job.job_id),
        curve=weighing.curve,
        unit=request.unit,
        min_nodes=max(request.min_nodes, request.unit),
        max_nodes=request.max_nodes,
        user=job.user,
        partition=job.partition,
        priority=job.priority / mean_priority if job.priority > 0 else 1.0,
        age_s=_age_s(ground, job),
        nodes=situation.size,
    )
    worth, fault = weigh(objective, facts)
    ask = _ask(ground, situation, pool, worth)
    if weighing.begins:
        ask = replace(ask, max_nodes=min(ask.max_nodes, ask.min_nodes))
    return _Asking(job.job_id, ask, fault)


def _age_s(ground: Ground, job: MalleableJob) -> float:
    """Seconds since the job was submitted."""
    since = job.submitted or ground.now
    return max(0.0, (ground.now - since).total_seconds())


def _ask(ground: Ground, situation: Situation, pool: Pool, worth: Worth) -> JobAsk:
    """Return a job's ask, with the cost of its changes.

    Arriving fragments train no more than held fragments, so more nodes for them are a start. A
    change of a training job costs the pause and the work done again. A growth also costs the time
    that the job was to run undisturbed. Changes of a pool are free.
    """
    job_id, plan, sizes = situation.job.job_id, ground.settings.plan, situation.sizes
    units = pool.units(situation.job)
    trains = any(f.state is FragmentState.RUNNING for f in situation.staying)
    costs = trains and situation.job.way.works_as_one
    held = pool.held_by.get(job_id, {})
    core, unit, waits = situation.core, situation.job.request.unit, situation.waits
    rest_s = waits.change.detail["seconds"] if waits.change else 0.0
    least, most = situation.fewest * units, (situation.reachable - core) * units
    ask = JobAsk(
        name=str(job_id),
        min_nodes=least,
        max_nodes=max(least, most),
        curve=worth.curve.scaled(units),
        weight=worth.weight,
        held=pool.row({key: pool.size(fragments) for key, fragments in held.items()}),
        usable=tuple(map(contains, pool.users, repeat(job_id))),
        unit=unit * units,
        grow_s=plan.grow_s + situation.redone_s + rest_s if costs else 0.0,
        shrink_s=plan.shrink_s + situation.redone_s if costs else 0.0,
        may_grow=not pool.is_closed and (not waits.growth or situation.is_off_size),
        sizes=None if sizes is None else frozenset(n * units for n in sizes),
        preferred=situation.job.request.preferred * units,
    )
    if core:
        ask = beside_core(ask, core * units, trains=core >= situation.least)
    return _at_most(ask, most)


def _at_most(ask: JobAsk, units: int) -> JobAsk:
    """Limit the ask to so many units.

    If no allowed size is so small, the job asks for 0 units and gives back all that it holds.
    """
    if units >= ask.max_nodes:
        return ask
    most = ask.settled(units)
    if most:
        return replace(ask, max_nodes=most)
    return replace(ask, held=(0,) * len(ask.held), may_grow=False, claim=0.0)
