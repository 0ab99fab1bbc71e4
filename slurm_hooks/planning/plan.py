"""Makes the plan of a tick from a snapshot.

Each job's state decides which fragments must leave and which could start. The allocator shares out
the nodes. Counts become fragments on named nodes, and leases of the other fragments are renewed.
"""

from __future__ import annotations

import math
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Optional

from slurm_hooks.allocation.objectives import Objective
from slurm_hooks.errors import MalleableError
from slurm_hooks.model import (
    OPEN_STATES,
    Detail,
    Fragment,
    FragmentState,
    Intent,
    JobPlan,
    MalleableJob,
    Plan,
    Reason,
    Snapshot,
    Verb,
    Why,
    one_each,
)
from slurm_hooks.planning.claims import waits_too_long, with_caps
from slurm_hooks.planning.eligibility import Eligibility
from slurm_hooks.planning.explain import Obstacles, reasons_for
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.idleness import idle_nodes
from slurm_hooks.planning.leases import cut, renewal
from slurm_hooks.planning.node_classes import kept_size, pool_of
from slurm_hooks.planning.packing import polite
from slurm_hooks.planning.placement import Change, change
from slurm_hooks.planning.shares import given, share_out
from slurm_hooks.planning.situation import Situation, situation_of
from slurm_hooks.planning.survey import Survey, survey_of
from slurm_hooks.settings.values import Settings


def make_plan(
    snapshot: Snapshot,
    settings: Settings,
    clock: Callable[[], float],
    objective: Optional[Objective] = None,
) -> Plan:
    """The plan for a snapshot. The same snapshot gives the same plan.

    `clock` only limits the search. Without `objective`, the settings must name an objective in
    `OBJECTIVES`. A job that cannot be planned is left alone, with a note: its leases stay as they
    are, and its nodes count as taken. Raises what planning raises if no job, or each of several
    jobs, is to blame.
    """
    plan = partial(_plan, settings=settings, clock=clock, objective=objective)
    try:
        return plan(snapshot)
    except MalleableError:
        raise
    except Exception:  # a bug: without a plan every job would lose its leases
        faults = {job.job_id: _fault(plan, snapshot, job) for job in snapshot.jobs}
        faults = {job_id: fault for job_id, fault in faults.items() if fault}
        if len(faults) in (0, max(2, len(snapshot.jobs))):
            raise
    lines = (f"job {job_id} left alone: a bug: {fault}" for job_id, fault in faults.items())
    healthy = tuple(job for job in snapshot.jobs if job.job_id not in faults)
    return plan(replace(snapshot, jobs=healthy, unknown=(*snapshot.unknown, *lines)))


def _fault(plan: Callable[[Snapshot], Plan], snapshot: Snapshot, job: MalleableJob) -> str:
    """Return why a job cannot be planned even alone, empty if it can."""
    try:
        plan(replace(snapshot, jobs=(job,)))
    except Exception as error:  # whatever it is, it concerns this job
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
        return f"{type(error).__name__}: {error} ({where})"
    return ""


def _plan(
    snapshot: Snapshot,
    settings: Settings,
    clock: Callable[[], float],
    objective: Optional[Objective],
) -> Plan:
    ground = Ground(snapshot, settings)
    survey = survey_of(ground)
    situations = with_caps(ground, [situation_of(survey, job) for job in snapshot.jobs])
    late = {s.job.job_id for s in situations if waits_too_long(ground, s)}
    eligibility = Eligibility(survey, situations, late)
    pool = pool_of(survey, eligibility, situations)
    shares = share_out(ground, eligibility, situations, pool, objective, clock)
    obstacles = Obstacles(survey, eligibility, pool, given(situations, shares, pool))
    actions: list[Intent] = []
    plans: list[JobPlan] = []
    probed: set[int] = set()
    last = _last_leases(survey, eligibility, situations)
    changes = [change(survey, s, shares.targets.get(s.job.job_id, {}), pool) for s in situations]
    for situation, made in zip(situations, changes):
        job_id = situation.job.job_id
        why_last = last.get(job_id)
        renewals = _renewals(ground, situation, made, why_last is not None)
        departures = situation.departures(ground.now)
        actions += (*situation.upkeep.actions, *departures, *made.actions, *renewals)
        planned = _job_plan(survey, situation, made, obstacles)
        if job_id in shares.beginning and planned.nodes_planned == situation.least:
            probes = Reason(Why.PROBED, Detail(nodes_planned=situation.least))
            planned = replace(planned, reasons=(probes, *planned.reasons))
            probed.add(job_id)
        if why_last is not None:
            ends = Reason(Why.GIVEN_BACK, Detail(because=why_last))
            planned = replace(planned, reasons=(*planned.reasons, ends))
        plans.append(planned)
    notes = (
        *(Reason(Why.UNREAD, Detail(said=line)) for line in snapshot.unknown),
        *(Reason(Why.OBJECTIVE, Detail(said=fault)) for fault in shares.faults),
        *survey.mandate.notes(snapshot),
        *_warnings(survey),
    )
    idle = idle_nodes(survey, eligibility, situations, actions, pool, probed)
    plan = Plan(
        one_each(actions),
        tuple(plans),
        shares.solve,
        notes,
        survey.mandate.level,
        idle,
        frozenset(name for i in actions for name in i.nodes if survey.holes[name].is_idle),
    )
    return polite(plan, survey.holes)


def _renewals(ground: Ground, situation: Situation, made: Change, is_last: bool) -> list[Intent]:
    """Renew leases, also for a finished job unless its present leases are the last.

    So its script may still work after the training.
    """
    actions: list[Intent] = []
    ends = (Verb.CANCEL, Verb.PUT_BACK)
    closed = {i.fragment for i in situation.upkeep.actions if i.verb in ends}
    for fragment in situation.job.stirring:
        is_ours = fragment.id in situation.stays and not fragment.is_core
        if is_ours and fragment.id not in closed:
            stay = situation.stays[fragment.id]
            is_going = fragment.is_leaving or stay.leaves is not None or fragment.id in made.going
            decide = cut if is_going else renewal
            renewed = decide(ground, fragment, situation.job, stay)
            if renewed is not None and not (is_last and _is_longer(renewed, fragment)):
                actions.append(renewed)
    return actions


def _is_longer(renewed: Intent, fragment: Fragment) -> bool:
    return renewed.end is not None and fragment.end is not None and renewed.end > fragment.end


def _job_plan(survey: Survey, situation: Situation, made: Change, obstacles: Obstacles) -> JobPlan:
    planned = made.size_of(situation)
    now = sum(f.size for f in situation.job.active)
    needed = 0 if situation.upkeep.has_ended else situation.least
    reasons = reasons_for(survey, situation, planned, obstacles)
    unit = situation.job.request.size_unit
    return JobPlan(situation.job.job_id, now, planned, reasons, nodes_needed=needed, unit=unit)


def _warnings(survey: Survey) -> Iterator[Reason]:
    """Warn of risks to the mechanism: nodes that kill, and Slurm's own settings."""
    for node, jobs in survey.suspects.items():
        yield Reason(Why.SUSPECT, Detail(nodes=(node,), jobs=jobs))
    seen, slurm = survey.ground.seen, survey.ground.slurm
    age_s = slurm.min_job_age.total_seconds()
    if seen.jobs and timedelta(0) < slurm.min_job_age < 4 * survey.ground.until_next:
        yield Reason(Why.MIN_JOB_AGE, Detail(seconds=age_s))
    if seen.records > 0.9 * slurm.max_job_count:
        full = Detail(count=seen.records, most=slurm.max_job_count, seconds=age_s)
        yield Reason(Why.MAX_JOB_COUNT, full)


def _last_leases(
    survey: Survey, eligibility: Eligibility, situations: Sequence[Situation]
) -> dict[int, Reason]:
    """The finished jobs whose present leases are the last, with the reasons, by job id.

    The allocator has no say in finished jobs, whose scripts still run. Either malleable jobs have
    more than the site allows now. Or a job has waited for `patience_s` and could use a node of
    theirs.
    """
    whys = ((s, {reason.why for reason in s.upkeep.reasons}) for s in situations if s.job.active)
    finished = {s.job.job_id: s.job for s, why in whys if Why.FINISHED in why}
    most, patience_s = survey.mandate.most_kept, survey.ground.settings.plan.patience_s
    if not finished:
        return {}
    kept = sum(kept_size(s) * eligibility.units(s.job) for s in situations)
    if most is not None and kept > most * eligibility.per_node:
        return dict.fromkeys(finished, Reason(Why.CEILING, Detail(ceiling=most)))
    waiting = _waiting(survey, eligibility, situations)
    reasons = {}
    for job_id, job in finished.items():
        known = job.nodes & survey.holes.keys()  # a node may have left slurm.conf
        first = min((j for n in known for j in eligibility.jobs(n) if j in waiting), default=None)
        if first is not None:
            reasons[job_id] = Reason(Why.BETTER_USE, Detail(job=first, seconds=patience_s))
    return reasons


def _waiting(
    survey: Survey, eligibility: Eligibility, situations: Sequence[Situation]
) -> frozenset[int]:
    """The jobs that have lost patience, and for which there are enough nodes, free or used."""
    ceiling = survey.mandate.ceiling
    most = math.inf if ceiling is None else ceiling * eligibility.per_node
    late = [s for s in situations if waits_too_long(survey.ground, s)]
    fit = (s for s in late if s.fewest * eligibility.units(s.job) <= most)
    fewest = {} if survey.mandate.waits else {s.job.job_id: s.fewest for s in fit}
    usable: Counter[int] = Counter()
    for name in eligibility.in_service if fewest else ():
        ours = fewest.keys() & eligibility.jobs(name)
        usable.update({j: eligibility.size(name, j) for j in ours})
    return frozenset(j for j, least in fewest.items() if least <= usable[j])


def ending_jobs(plan: Plan) -> frozenset[int]:
    return frozenset(i.fragment.job_id for i in plan.actions if i.verb is Verb.CANCEL)


def with_summaries(plan: Plan, seen: Snapshot, summaries: Mapping[int, str]) -> Plan:
    """Add a line to the plan for each job that it closes, by job id, before its last cancels.

    Slurm refuses to change an ended job (22.05). So a job without open fragments gets no summary.
    """
    ending = ending_jobs(plan)
    texts = ((job, summaries.get(job.job_id)) for job in seen.jobs if job.job_id in ending)
    bearers = ((_bearer(job), text) for job, text in texts if text)
    lines = [Intent(f.id, Why.SUMMED_UP, mark=f.mark, summary=text) for f, text in bearers if f]
    return replace(plan, actions=one_each((*lines, *plan.actions))) if lines else plan


def _bearer(job: MalleableJob) -> Optional[Fragment]:
    """The fragment that carries the line: a running fragment if there is any, else the first."""
    open_fragments = (f for f in job.fragments if f.state in OPEN_STATES)
    return min(open_fragments, key=lambda f: f.state is not FragmentState.RUNNING, default=None)
