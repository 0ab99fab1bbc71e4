"""Snapshot in, Plan out: the whole decision of one tick.

Upkeep of what ended, notice to what must leave, allocation of what is left, leases of what stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Optional

from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.curves import prior
from slurm_hooks.allocation.objectives import (
    OBJECTIVES,
    JobFacts,
    Objective,
    Record,
    Worth,
    amortised,
    weigh,
)
from slurm_hooks.allocation.problem import Allocation, JobAsk, Limits, NodeClass, Problem
from slurm_hooks.model import (
    ON_NODES,
    WAITING_STATES,
    Action,
    Cause,
    Finish,
    Fragment,
    FragmentId,
    FragmentState,
    Grow,
    Hold,
    Hole,
    JobPlan,
    MalleableJob,
    Plan,
    Remark,
    Renew,
    Shrink,
    Slurm,
    Snapshot,
)
from slurm_hooks.planning.explain import Obstacles, reasons_for
from slurm_hooks.planning.failures import shunned, suspects
from slurm_hooks.planning.holes import holes_of, latest_end
from slurm_hooks.planning.leases import Stay, cut, may_stay, notice, renewal
from slurm_hooks.planning.lifecycle import Upkeep, upkeep
from slurm_hooks.planning.moments import is_within
from slurm_hooks.planning.node_classes import ClassKey, Ground, Pool, pool_of
from slurm_hooks.planning.placement import Change, change
from slurm_hooks.planning.suits import Suits
from slurm_hooks.settings import Settings


@dataclass(frozen=True)
class Case:
    """One job with what its state allows: who stays, who must leave, who may start.

    `is_apart` is true for a job whose fragments do not meet: several would each train on their own,
    so it is kept to one.
    """

    job: MalleableJob
    upkeep: Upkeep
    stays: dict[FragmentId, Stay]
    notices: tuple[Action, ...]
    snoozes: bool
    is_apart: bool = False

    @cached_property
    def staying(self) -> tuple[Fragment, ...]:
        """Fragments that train, or are about to, and may go on."""
        stays = (f for f in self.job.active if self.stays[f.id].leaves is None)
        return (*stays, *self.upkeep.arriving)

    @cached_property
    def size(self) -> int:
        """The nodes of the staying fragments."""
        return sum(len(f.nodes) for f in self.staying)

    @property
    def least(self) -> int:
        """The fewest nodes it may train on."""
        return self.job.request.unit if self.is_apart else self.job.request.min_nodes

    @cached_property
    def reachable(self) -> int:
        """The most nodes it could have at once after this tick."""
        unit = self.job.request.unit
        growable = 0 if self.snoozes and self.size == 0 else len(self.upkeep.growable)
        most = unit if self.is_apart else self.job.request.max_nodes
        return min(most, self.size + unit * growable)

    @property
    def is_placed(self) -> bool:
        """True if the allocator decides about it; else it keeps what it has this time.

        A gang that cannot reach its minimum now, because fragments are on their way out or in, is
        left in peace until they are back.
        """
        return not self.upkeep.is_over and self.reachable >= self.least


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
    cases = [_case(job, ground, settings, snapshot.slurm) for job in snapshot.jobs]
    placed = [case for case in cases if case.is_placed]
    shuns = {c.job.job_id: shunned(c.job, ground.now, settings) for c in cases}
    suits = Suits(ground, (case.job for case in cases), shuns)
    pool = _pool(ground, suits, cases, placed)
    keys = pool.keys
    worths, faults = _worths(placed, snapshot, settings, objective)
    problem = _problem(placed, pool, keys, worths, settings)
    if settings.plan.rescale == "amortised":
        problem = amortised(problem, [_record(case, snapshot) for case in placed])
    limits = Limits(settings.plan.solve_limit_s, settings.plan.gap)
    allocation = allocate(problem, limits, settings.plan.solver, clock)
    changes = _changes(placed, pool, keys, allocation, ground)
    obstacles = Obstacles(ground, suits, holes)
    actions: list[Action] = []
    plans: list[JobPlan] = []
    for case in cases:
        made = changes.get(case.job.job_id, Change())
        actions += _without_twice((*case.upkeep.actions, *case.notices, *made.actions))
        actions += _renewals(case, made.going, ground, settings)
        plans.append(_job_plan(case, made, obstacles, settings))
    notes = snapshot.unknown + faults + _warnings(snapshot, ground)
    return Plan(tuple(actions), tuple(plans), allocation.solve, notes)


def _without_twice(actions: tuple[Action, ...]) -> list[Action]:
    """Marks that a later action writes again anyway, newer, are left out."""
    writes = (a for a in actions if not isinstance(a, (Finish, Hold, Renew)))
    last = {a.fragment: a for a in writes if a.mark is not None}
    return [a for a in actions if not isinstance(a, Remark) or last[a.fragment] is a]


def _ground(snapshot: Snapshot, settings: Settings, holes: dict[str, Hole]) -> Ground:
    latest = {n: latest_end(h, snapshot.slurm, settings.lease) for n, h in holes.items()}
    accused = suspects(snapshot.jobs, snapshot.now, settings, len(snapshot.nodes))
    return Ground(
        now=snapshot.now,
        nodes={node.name: node for node in snapshot.nodes},
        latest=latest,
        horizon=timedelta(seconds=settings.plan.horizon_s),
        longest_lease=timedelta(seconds=settings.lease.length_s),
        until_next=timedelta(seconds=settings.tick.every_s),
        suspects={
            node: f"fragments of jobs {', '.join(map(str, jobs))} died there"
            for node, jobs in accused.items()
        },
    )


def _case(job: MalleableJob, ground: Ground, settings: Settings, slurm: Slurm) -> Case:
    care = upkeep(job, ground.now, settings, slurm)
    job, care = _as_marked(job, care)
    running = (f for f in job.fragments if f.state is FragmentState.RUNNING)
    is_apart = not care.is_over and _is_apart(job, ground, settings)
    if is_apart:
        job, care = _with_alone_noted(job, care)
    stays = {f.id: may_stay(f, ground, settings.lease) for f in running}
    leaving = {f: stays[f.id].leaves for f in job.active}
    if care.is_over:
        ends = tuple(Finish((f.id,), cause) for f, cause in leaving.items() if cause)
        return Case(job, care, stays, ends, False)
    notices = tuple(notice(f, cause, ground.now) for f, cause in leaving.items() if cause)
    snooze = timedelta(seconds=settings.plan.snooze_s)
    snoozes = any(is_within(ground.now, f.mark.noticed, snooze) for f in job.fragments)
    found = Case(job, care, stays, notices, snoozes, is_apart)
    if found.size and _is_hopeless(found, ground, settings):
        idle = [f for f in found.staying if f.state is FragmentState.RUNNING]
        more = tuple(notice(f, Cause.BELOW_MIN, ground.now) for f in idle)
        stays.update((f.id, replace(stays[f.id], leaves=Cause.BELOW_MIN)) for f in idle)
        return Case(job, care, stays, (*notices, *more), snoozes, is_apart)
    return found


def _is_apart(job: MalleableJob, ground: Ground, settings: Settings) -> bool:
    """True if a fragment has run for long enough to meet others and no agent has ever spoken."""
    if job.has_agent:
        return False
    patience = timedelta(seconds=settings.failures.join_s)
    starts = (f.start for f in job.active if f.start is not None)
    is_known = any(f.mark.is_alone for f in job.fragments)
    return is_known or any(ground.now - start >= patience for start in starts)


def _with_alone_noted(job: MalleableJob, care: Upkeep) -> tuple[MalleableJob, Upkeep]:
    """With the mark on one fragment that the job is kept to one, also when that one has gone."""
    if any(f.mark.is_alone for f in job.fragments):
        return job, care
    states = (FragmentState.RUNNING, *WAITING_STATES)
    first = next((f for f in job.fragments if f.state in states), None)
    if first is None:
        return job, care
    note = Remark(first.id, replace(first.mark, is_alone=True), Cause.ALONE)
    return _as_marked(job, replace(care, actions=(*care.actions, note)))


def _is_hopeless(case: Case, ground: Ground, settings: Settings) -> bool:
    """True if a gang has been below its minimum for long, and nothing came or went meanwhile."""
    if case.is_placed or case.size >= case.least:
        return False
    wait = timedelta(seconds=settings.plan.gang_wait_s)
    moments = ((f.start, f.mark.released, f.mark.noticed) for f in case.job.fragments)
    return not any(is_within(ground.now, when, wait) for row in moments for when in row)


def _as_marked(job: MalleableJob, care: Upkeep) -> tuple[MalleableJob, Upkeep]:
    """Job and upkeep with the marks that the upkeep's own actions will have written."""
    marks = {a.fragment: a.mark for a in care.actions if isinstance(a, (Shrink, Remark)) and a.mark}
    if not marks:
        return job, care

    def told(fragments: tuple[Fragment, ...]) -> tuple[Fragment, ...]:
        return tuple(replace(f, mark=marks[f.id]) if f.id in marks else f for f in fragments)

    care = replace(care, arriving=told(care.arriving), growable=told(care.growable))
    return replace(job, fragments=told(job.fragments)), care


def _pool(ground: Ground, suits: Suits, cases: list[Case], placed: list[Case]) -> Pool:
    """Free nodes are those that no fragment of ours is on, or on its way to."""
    fragments = (f for case in cases for f in case.job.fragments)
    taken = frozenset(n for f in fragments if f.state in ON_NODES for n in f.nodes)
    known = ground.nodes.keys()
    staying = {
        case.job.job_id: tuple(f for f in case.staying if f.nodes and f.nodes <= known)
        for case in placed
    }
    return pool_of(ground, suits, staying, taken)


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
    """What is on its way trains no more than what is held: to give it more is a start."""
    job, plan = case.job, settings.plan
    trains = any(f.state is FragmentState.RUNNING for f in case.staying)
    mine = [pool.held.get(key, {}).get(job.job_id, []) for key in keys]
    return JobAsk(
        name=str(job.job_id),
        min_nodes=case.least,
        max_nodes=case.reachable,
        curve=worth.curve,
        weight=worth.weight,
        held=tuple(sum(len(f.nodes) for f in found) for found in mine),
        usable=tuple(job.job_id in key.jobs for key in keys),
        unit=job.request.unit,
        grow_s=plan.grow_s if trains else plan.start_s,
        shrink_s=plan.shrink_s if trains else 0,
        start_s=plan.start_s,
        may_grow=not case.snoozes or 0 < case.size < case.least,
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
        made = change(case.job, targets, pool, growable, ground, case.least)
        changes[case.job.job_id] = made
    return changes


def _renewals(
    case: Case, going: frozenset[FragmentId], ground: Ground, settings: Settings
) -> list[Action]:
    """Of a finished job too: what its script does after the training is not cut short."""
    actions: list[Action] = []
    closed = {f for a in case.upkeep.actions if isinstance(a, Finish) for f in a.fragments}
    closed |= {a.fragment for a in case.upkeep.actions if isinstance(a, Shrink)}
    for fragment in case.job.fragments:
        if fragment.id in case.stays and fragment.id not in closed:
            stay = case.stays[fragment.id]
            is_going = fragment.is_leaving or stay.leaves is not None or fragment.id in going
            decide = cut if is_going else renewal
            made = decide(fragment, case.job, stay, ground, settings.lease)
            actions += [made] if made else []
    return actions


def _job_plan(case: Case, made: Change, obstacles: Obstacles, settings: Settings) -> JobPlan:
    grown = sum(len(a.nodes) for a in made.actions if isinstance(a, Grow))
    lost = sum(len(f.nodes) for f in case.job.fragments if f.id in made.going)
    planned = case.size + grown - lost
    now = sum(len(f.nodes) for f in case.job.active)
    reasons = reasons_for(case, planned, obstacles, settings)
    return JobPlan(case.job.job_id, now, planned, reasons)


def _warnings(snapshot: Snapshot, ground: Ground) -> tuple[str, ...]:
    """What puts the mechanism at risk: nodes that kill, Slurm's own settings."""
    lines = [
        f"{node}: {why}, so no malleable job uses it for now: have a look at it"
        for node, why in ground.suspects.items()
    ]
    slurm = snapshot.slurm
    if snapshot.jobs and timedelta(0) < slurm.min_job_age < 4 * ground.until_next:
        lines.append(
            f"MinJobAge={slurm.min_job_age.total_seconds():.0f} in slurm.conf: a fragment whose "
            "lease ended is forgotten after that, and lost to its job if no tick ran meanwhile"
        )
    if snapshot.records > 0.9 * slurm.max_job_count:
        lines.append(
            f"slurmctld holds {snapshot.records} job records and takes {slurm.max_job_count} "
            "(MaxJobCount); ended ones count for MinJobAge="
            f"{slurm.min_job_age.total_seconds():.0f} s: soon nobody can submit"
        )
    return tuple(lines)
