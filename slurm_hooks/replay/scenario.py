"""From choices to a run: which record, which queue, which policy under which rules.

The rules of the real system come from the site's settings, so that a site replays what it would
run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Optional

from slurm_hooks.allocation.objectives import OBJECTIVES
from slurm_hooks.allocation.problem import Limits
from slurm_hooks.errors import UsageError
from slurm_hooks.model import Curve
from slurm_hooks.model.moments import UNITS_S
from slurm_hooks.model.plural import plural
from slurm_hooks.replay.logs.backfill import reschedule
from slurm_hooks.replay.logs.idle_csv import read_idle
from slurm_hooks.replay.logs.log_lines import Log
from slurm_hooks.replay.logs.placement import Placed, place
from slurm_hooks.replay.logs.sacct import read_sacct
from slurm_hooks.replay.logs.swf import RigidJob, Workload, read_swf
from slurm_hooks.replay.policies.learning import Learning, Way, priors_of
from slurm_hooks.replay.policies.plain import Equal, Nothing
from slurm_hooks.replay.policies.published import Optimum
from slurm_hooks.replay.policies.shipped import Allocator, Shipped
from slurm_hooks.replay.question import Policy
from slurm_hooks.replay.record import Record, dedicated
from slurm_hooks.replay.rules import OwnPace, Rescale, Rules
from slurm_hooks.replay.simulator.simulate import Outcome, Simulation
from slurm_hooks.replay.simulator.watched import WatchedSimulation
from slurm_hooks.replay.work import Queue
from slurm_hooks.settings.values import Settings
from slurm_hooks.tick.entry_points import find_objective

WAYS = tuple(way.value for way in Way)
POLICIES = ("default", "optimum", "equal", "greedy", "oracle", "none", *WAYS)
ENDS = ("planned", "unknown")
LONGEST_LULL_S = 90.0 * UNITS_S["d"]
"""A single wrong date makes a log decades long. A replay decides twice a minute all that time."""
KILL_WAIT_S = 30.0
"""Slurm's default KillWait: the longest that a fragment can stay after its time limit."""


@dataclass(frozen=True)
class Source:
    """Where the record comes from: `kind` is idle, swf or sacct."""

    kind: str
    path: Path
    columns: Optional[tuple[int, int]] = None
    is_rescheduled: bool = False
    machine: str = ""
    skip_bad: bool = False


@dataclass(frozen=True)
class Loaded:
    """A record, and for rescheduled workloads what is needed to schedule them again."""

    record: Record
    workload: Optional[Workload] = None
    jobs: tuple[RigidJob, ...] = ()
    placed: Optional[Placed] = None


@dataclass(frozen=True)
class Conditions:
    """What every line of one replay has in common. `tick_s` zero means event-driven; with
    `has_own_pace` it is the first interval, and ticks choose the others.

    Where curves have to be learned, `site` are those that its other models have shown before, by
    name: one of the same `family_of` is none of them. With `shares_family`, jobs of one model know
    what those before them have shown.
    """

    queue: Queue
    jobs: int
    rescale: Rescale
    t_fwd_s: float
    tick_s: float
    latency_s: float
    checkpoint_s: float
    objective: str = ""  # empty: each policy's own
    ends: str = "planned"
    solver: str = ""  # empty: as in a tick, or greedy if event-driven
    redoes_planned: bool = False
    has_own_pace: bool = False
    site: Mapping[str, Curve] = field(default_factory=dict)
    family_of: Callable[[str], str] = str
    shares_family: bool = False


def load(source: Source, tell: Callable[[str], None]) -> Loaded:
    """Read the log. Raises BadLog, UsageError."""
    log = Log(source.path, source.skip_bad, tell)
    if source.kind == "idle":
        return Loaded(read_idle(log, source.columns))
    if source.kind == "sacct":
        return Loaded(read_sacct(log, source.machine))
    workload = read_swf(log)
    jobs = reschedule(workload) if source.is_rescheduled else workload.jobs
    placed = place(jobs, workload.nodes, workload.window_s)
    record = replace(placed.record, skipped=log.skipped)
    if not source.is_rescheduled:
        return Loaded(record)
    note = "jobs were rescheduled (FCFS, EASY backfill): far less is idle than on real machines"
    return Loaded(replace(record, notes=(*record.notes, note)), workload, jobs, placed)


def window(record: Record, from_s: Optional[float], to_s: Optional[float]) -> Record:
    """The part of the record that was asked for. Raises UsageError if there is none, or if it has a
    lull of more than `LONGEST_LULL_S`."""
    start = record.from_s if from_s is None else max(from_s, record.from_s)
    end = record.to_s if to_s is None else min(to_s, record.to_s)
    if end <= start:
        raise UsageError(
            f"--from {start:g} --to {end:g}: the log has {record.from_s:g} to {record.to_s:g} s"
        )
    part = record if (start, end) == (record.from_s, record.to_s) else record.between(start, end)
    _refuse_lull(part)
    return part


def _refuse_lull(record: Record) -> None:
    start, end = record.longest_lull
    if end - start <= LONGEST_LULL_S:
        return
    cuts = [f"--to {start:.15g}"] if start > record.from_s else []
    cuts += [f"--from {end:.15g}"] if end < record.to_s else []
    raise UsageError(
        f"no node changes hands from {start:.15g} to {end:.15g} s, for "
        f"{plural(round((end - start) / UNITS_S['d']), 'day')}: is a date of the log wrong? Give "
        f"{' or '.join(cuts) or 'a log of a shorter time'}"
    )


def rules_of(conditions: Conditions, settings: Settings, nodes: int = 0) -> Rules:
    """How the real system behaves on `nodes` nodes; event-driven runs leave out all that takes
    time."""
    plan, lease = settings.plan, settings.lease
    if not conditions.tick_s:
        return Rules(
            conditions.rescale,
            horizon_s=conditions.t_fwd_s,
            checkpoint_s=conditions.checkpoint_s,
            redoes_planned=conditions.redoes_planned,
        )
    return Rules(
        conditions.rescale,
        tick_s=conditions.tick_s,
        latency_s=conditions.latency_s,
        early_s=lease.margin_s + KILL_WAIT_S,
        lead_s=lease.notice_s + conditions.tick_s,
        shortest_s=lease.shortest_hole_s,
        horizon_s=conditions.t_fwd_s,
        snooze_s=plan.snooze_s,
        patience_s=plan.patience_s,
        checkpoint_s=conditions.checkpoint_s,
        redoes_planned=conditions.redoes_planned,
        pace=OwnPace(settings.tick, nodes) if conditions.has_own_pace else None,
    )


def policy_of(name: str, conditions: Conditions, settings: Settings) -> Policy:
    """The policy of that name.

    Event-driven, nodes that will close soon are worth taking too, so known ends make many classes
    at each of some ten thousand decisions: the greedy search answers there unless a solver is
    asked for.
    """
    rescale, t_fwd_s = conditions.rescale, conditions.t_fwd_s
    if name == "none":
        return Nothing()
    if name == "equal":
        return Equal()
    if name == "optimum":
        return Optimum(rescale, t_fwd_s, conditions.objective == "speedup")
    usual = "auto" if conditions.tick_s else "greedy"
    is_ours = (conditions.objective or settings.plan.objective) in OBJECTIVES
    if name in WAYS:
        inner = policy_of("default", conditions, settings)
        assert isinstance(inner, Allocator)
        priors = priors_of(conditions.site, conditions.family_of)
        return Learning(inner, priors, rescale, Way(name), conditions.shares_family)
    shipped = Shipped(
        rescale,
        t_fwd_s,
        sees_ends=name == "oracle" or conditions.ends == "planned",
        objective=find_objective(conditions.objective or settings.plan.objective),
        solver="greedy" if name == "greedy" else conditions.solver or usual,
        is_tabled=name != "greedy" and not conditions.solver and is_ours,
        limits=Limits(settings.plan.solve_limit_s, settings.plan.gap),
    )
    return Allocator(shipped)


def run(
    name: str,
    record: Record,
    conditions: Conditions,
    settings: Settings,
    tell: Callable[[float], None] = lambda share: None,
) -> Outcome:
    """One line: the policy of that name over the record."""
    if name == "oracle":
        known = tuple(replace(i, known_s=-math.inf) for i in record.intervals)
        record = replace(record, intervals=known)
    policy = policy_of(name, conditions, settings)
    rules = rules_of(conditions, settings, record.nodes)
    if isinstance(policy, Learning):
        watched = WatchedSimulation(record, conditions.queue, conditions.jobs, policy, rules)
        return replace(watched.run(tell), spent=policy.spent)
    return Simulation(record, conditions.queue, conditions.jobs, policy, rules).run(tell)


def run_dedicated(record: Record, conditions: Conditions) -> tuple[Outcome, float]:
    """The same queue on as many nodes as are idle on average, all the time, without rescales.

    Whole nodes are run; the factor scales the result to the exact average. The objective is the
    sum of speed-ups whatever the policies want, so that lines can be compared.
    """
    nodes = max(round(record.equivalent_nodes), 1)
    free = Rescale(0.0, 0.0)
    best = Optimum(free, conditions.t_fwd_s, is_normalised=True)
    whole = dedicated(nodes, record.from_s, record.to_s)
    outcome = Simulation(whole, conditions.queue, conditions.jobs, best, Rules(free)).run()
    return outcome, record.equivalent_nodes / nodes


def planned_delays(loaded: Loaded, outcome: Outcome, rules: Rules) -> Optional[list[float]]:
    """Seconds by which planned starts of rigid jobs moved because of malleable jobs.

    Only a rescheduled workload can move: its schedule is computed again, every planned job delayed
    by `KILL_WAIT_S` whose nodes were still in use at its start, unless by jobs that stay to be
    preempted: their agents end at SIGTERM, as fast as an empty node starts a job. A start is
    planned if the job was queued for long enough that a tick saw it in time. Recorded starts
    are not simulated: None.
    """
    if loaded.workload is None or loaded.placed is None:
        return None
    ahead_s = rules.early_s + rules.lead_s + rules.tick_s + rules.latency_s
    planned = {
        at: job
        for at, job in enumerate(loaded.jobs)
        if not job.is_running and 0 < job.start_s - job.submit_s >= ahead_s
    }
    held: dict[float, set[int]] = {}
    for at_s, node in set(outcome.lost) - outcome.stayed:
        held.setdefault(at_s, set()).add(node)
    nodes = loaded.placed.nodes
    late = {
        job.number
        for at, job in planned.items()
        if not held.get(job.start_s, set()).isdisjoint(nodes.get(at, ()))
    }
    again = reschedule(loaded.workload, dict.fromkeys(late, KILL_WAIT_S))
    moved = {job.number: job.start_s for job in again}
    return [max(0.0, moved[job.number] - job.start_s) for job in planned.values()]
