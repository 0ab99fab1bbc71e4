"""Snapshot in, Plan out: the whole decision of one tick.

Upkeep of what ended, notice to what must leave, allocation of what is left, leases of what stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Optional

from slurm_hooks.core.allocate import allocate
from slurm_hooks.core.arrange import Change, change
from slurm_hooks.core.classes import ClassKey, Ground, Pool, pool_of
from slurm_hooks.core.curves import prior
from slurm_hooks.core.explain import reasons_for
from slurm_hooks.core.holes import holes_of, latest_end
from slurm_hooks.core.leases import Stay, may_stay, notice, renewal
from slurm_hooks.core.lifecycle import Upkeep, upkeep
from slurm_hooks.core.objectives import (
    OBJECTIVES,
    JobFacts,
    Objective,
    Record,
    Worth,
    amortised,
    weigh,
)
from slurm_hooks.core.problem import Allocation, JobAsk, Limits, NodeClass, Problem
from slurm_hooks.model import (
    Action,
    Cause,
    Finish,
    Fragment,
    FragmentState,
    Grow,
    Hole,
    JobPlan,
    MalleableJob,
    Plan,
    Remark,
    Shrink,
    Snapshot,
)
from slurm_hooks.settings import Settings


@dataclass(frozen=True)
class Case:
    """One job with what its state allows: who stays, who must leave, who may start."""

    job: MalleableJob
    upkeep: Upkeep
    stays: dict[Fragment, Stay]
    notices: tuple[Action, ...]
    snoozes: bool

    @property
    def staying(self) -> tuple[Fragment, ...]:
        """Fragments that train, or are about to, and may go on."""
        running = tuple(f for f, stay in self.stays.items() if stay.leaves is None)
        return running + self.upkeep.arriving

    @property
    def size(self) -> int:
        """The nodes of the staying fragments."""
        return sum(len(f.nodes) for f in self.staying)

    @property
    def reachable(self) -> int:
        """The most nodes it could have at once after this tick."""
        unit = self.job.request.unit
        growable = 0 if self.snoozes and self.size == 0 else len(self.upkeep.growable)
        return min(self.job.request.max_nodes, self.size + unit * growable)

    @property
    def is_placed(self) -> bool:
        """True if the allocator decides about it; else it keeps what it has this time.

        A gang that cannot reach its minimum now, because fragments are on their way out or in, is
        left in peace until they are back.
        """
        return not self.upkeep.is_over and self.reachable >= self.job.request.min_nodes


def make_plan(
    snapshot: Snapshot,
    settings: Settings,
    clock: Callable[[], float],
    objective: Optional[Objective] = None,
) -> Plan:
    """The plan for a snapshot. Same snapshot, same plan; `clock` only ends a search in time.

    `objective` is that of the settings, which must be one of `OBJECTIVES` if it is not given.
    """
    holes = holes_of(snapshot)
    ground = _ground(snapshot, settings, holes)
    cases = [_case(job, ground, settings) for job in snapshot.jobs]
    placed = [case for case in cases if case.is_placed]
    pool = _pool(ground, cases, placed)
    keys = pool.keys
    worths, faults = _worths(placed, snapshot, settings, objective)
    problem = _problem(placed, pool, keys, worths, settings)
    if settings.plan.rescale == "amortised":
        problem = amortised(problem, [_record(case, snapshot) for case in placed])
    limits = Limits(settings.plan.solve_limit_s, settings.plan.gap)
    allocation = allocate(problem, limits, settings.plan.solver, clock)
    changes = _changes(placed, pool, keys, allocation, ground)
    actions: list[Action] = []
    plans: list[JobPlan] = []
    for case in cases:
        made = changes.get(case.job.job_id, Change((), frozenset()))
        actions += [*case.upkeep.actions, *case.notices, *made.actions]
        actions += _renewals(case, made.going, ground, settings)
        plans.append(_job_plan(case, made, ground, holes, settings))
    notes = snapshot.unknown + faults + _warnings(snapshot)
    return Plan(tuple(actions), tuple(plans), allocation.solve, notes)


def _ground(snapshot: Snapshot, settings: Settings, holes: dict[str, Hole]) -> Ground:
    latest = {n: latest_end(h, snapshot.slurm, settings.lease) for n, h in holes.items()}
    return Ground(
        now=snapshot.now,
        nodes={node.name: node for node in snapshot.nodes},
        latest=latest,
        horizon=timedelta(seconds=settings.plan.horizon_s),
        longest_lease=timedelta(seconds=settings.lease.length_s),
        until_next=timedelta(seconds=settings.tick.every_s),
    )


def _case(job: MalleableJob, ground: Ground, settings: Settings) -> Case:
    care = upkeep(job, ground.now, settings)
    job, care = _as_marked(job, care)
    stays = {f: may_stay(f, ground, settings.lease) for f in job.active}
    leaving = {f: s.leaves for f, s in stays.items() if s.leaves}
    if care.is_over:
        ends = tuple(Finish((f.id,), cause) for f, cause in leaving.items())
        return Case(job, care, stays, ends, False)
    notices = tuple(notice(f, cause, ground.now) for f, cause in leaving.items())
    left = [f.mark.noticed for f in job.fragments if f.mark.noticed is not None]
    snooze = timedelta(seconds=settings.plan.snooze_s)
    return Case(job, care, stays, notices, any(ground.now - when < snooze for when in left))


def _as_marked(job: MalleableJob, care: Upkeep) -> tuple[MalleableJob, Upkeep]:
    """Job and upkeep with the marks that the upkeep's own actions will have written."""
    marks = {a.fragment: a.mark for a in care.actions if isinstance(a, (Shrink, Remark)) and a.mark}

    def told(fragments: tuple[Fragment, ...]) -> tuple[Fragment, ...]:
        return tuple(replace(f, mark=marks.get(f.id, f.mark)) for f in fragments)

    care = replace(care, arriving=told(care.arriving), growable=told(care.growable))
    return replace(job, fragments=told(job.fragments)), care


def _pool(ground: Ground, cases: list[Case], placed: list[Case]) -> Pool:
    """Free nodes are those that no fragment of ours is on, or on its way to."""
    out = (FragmentState.PENDING, FragmentState.RUNNING, FragmentState.ENDING)
    fragments = (f for case in cases for f in case.job.fragments)
    taken = frozenset(n for f in fragments if f.state in out for n in f.nodes)
    known = ground.nodes.keys()
    staying = {
        case.job.job_id: tuple(f for f in case.staying if f.nodes and f.nodes <= known)
        for case in placed
    }
    return pool_of(ground, (case.job for case in placed), staying, taken)


def _worths(
    placed: list[Case], snapshot: Snapshot, settings: Settings, objective: Optional[Objective]
) -> tuple[list[Worth], tuple[str, ...]]:
    """What each job counts, and what was wrong with what the objective said."""
    objective = objective or OBJECTIVES[settings.plan.objective]
    known = [case.job.priority for case in placed if case.job.priority > 0]
    mean = sum(known) / len(known) if known else 1.0
    serial = settings.plan.serial_fraction
    facts = (_facts(case, snapshot, serial, mean) for case in placed)
    found = [weigh(objective, of_job) for of_job in facts]
    return [worth for worth, _ in found], tuple(fault for _, fault in found if fault)


def _facts(case: Case, snapshot: Snapshot, serial: float, mean_priority: float) -> JobFacts:
    job, request = case.job, case.job.request
    curve = snapshot.curves.get(job.job_id)
    return JobFacts(
        name=str(job.job_id),
        curve=curve or prior(serial, request.max_nodes),
        unit=request.unit,
        min_nodes=request.min_nodes,
        max_nodes=request.max_nodes,
        user=job.user,
        partition=job.partition,
        priority=job.priority / mean_priority if job.priority > 0 else 1.0,
        age_s=_record(case, snapshot).age_s,
        nodes=case.size,
    )


def _record(case: Case, snapshot: Snapshot) -> Record:
    """Age since submission, and fragments put back so far: about one for each rescale."""
    since = case.job.submitted or snapshot.now
    age_s = max(0.0, (snapshot.now - since).total_seconds())
    return Record(age_s, sum(f.restarts for f in case.job.fragments))


def _problem(
    placed: list[Case],
    pool: Pool,
    keys: list[ClassKey],
    worths: list[Worth],
    settings: Settings,
) -> Problem:
    jobs = (_ask(case, pool, keys, worth, settings) for case, worth in zip(placed, worths))
    return Problem(
        jobs=tuple(jobs),
        classes=tuple(NodeClass(pool.capacity(key), key.open_s) for key in keys),
        horizon_s=settings.plan.horizon_s,
        headroom_nodes=settings.plan.headroom_nodes,
    )


def _ask(case: Case, pool: Pool, keys: list[ClassKey], worth: Worth, settings: Settings) -> JobAsk:
    job, plan = case.job, settings.plan
    mine = [pool.held.get(key, {}).get(job.job_id, []) for key in keys]
    return JobAsk(
        name=str(job.job_id),
        min_nodes=job.request.min_nodes,
        max_nodes=case.reachable,
        curve=worth.curve,
        weight=worth.weight,
        held=tuple(sum(len(f.nodes) for f in found) for found in mine),
        usable=tuple(job.job_id in key.jobs for key in keys),
        unit=job.request.unit,
        grow_s=plan.grow_s,
        shrink_s=plan.shrink_s,
        start_s=plan.start_s,
        may_grow=not case.snoozes or 0 < case.size < job.request.min_nodes,
    )


def _changes(
    placed: list[Case],
    pool: Pool,
    keys: list[ClassKey],
    allocation: Allocation,
    ground: Ground,
) -> dict[int, Change]:
    changes = {}
    for case, counts in zip(placed, allocation.counts):
        targets = dict(zip(keys, counts))
        growable = case.upkeep.growable
        changes[case.job.job_id] = change(case.job, targets, pool, growable, ground)
    return changes


def _renewals(
    case: Case, going: frozenset[Fragment], ground: Ground, settings: Settings
) -> list[Action]:
    stayers = [(f, s) for f, s in case.stays.items() if s.leaves is None and f not in going]
    made = [renewal(f, case.job, stay, ground, settings.lease) for f, stay in stayers]
    found = [action for action in made if action is not None]
    if case.upkeep.is_over:  # no longer than now, but a closing hole still cuts
        return [action for action in found if action.cause is Cause.HOLE_CLOSES]
    return list(found)


def _job_plan(
    case: Case, made: Change, ground: Ground, holes: dict[str, Hole], settings: Settings
) -> JobPlan:
    grown = sum(len(a.nodes) for a in made.actions if isinstance(a, Grow))
    lost = sum(len(f.nodes) for f in made.going)
    planned = case.size + grown - lost
    now = sum(len(f.nodes) for f in case.job.active)
    reasons = reasons_for(case, planned, ground, holes, settings)
    return JobPlan(case.job.job_id, now, planned, reasons)


def _warnings(snapshot: Snapshot) -> tuple[str, ...]:
    """What in Slurm's own settings puts the mechanism at risk."""
    if snapshot.jobs and snapshot.slurm.min_job_age < timedelta(minutes=5):
        age = int(snapshot.slurm.min_job_age.total_seconds())
        return (
            f"MinJobAge={age} in slurm.conf: a fragment that ended is forgotten after that, "
            "and lost to its job if no tick ran meanwhile; set 3600",
        )
    return ()
