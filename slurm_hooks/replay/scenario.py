"""Turn choices into a run: the record, the queue, the planner and the settings.

The rules come from the site's settings, so that a replay matches the site's own ticks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Optional

from slurm_hooks.errors import UsageError
from slurm_hooks.model import Slurm
from slurm_hooks.model.moments import UNITS_S, plural
from slurm_hooks.replay.costs import Costs, Rescale
from slurm_hooks.replay.grain import Grain
from slurm_hooks.replay.logs.idle_csv import read_idle
from slurm_hooks.replay.logs.log_lines import Log
from slurm_hooks.replay.logs.placement import place
from slurm_hooks.replay.logs.sacct import read_sacct
from slurm_hooks.replay.logs.slots_csv import read_slots
from slurm_hooks.replay.logs.swf import read_swf
from slurm_hooks.replay.outcome import Outcome
from slurm_hooks.replay.record import Record
from slurm_hooks.replay.work import Queue
from slurm_hooks.replay.world.calendar import calendar_of
from slurm_hooks.replay.world.learner import Learner
from slurm_hooks.replay.world.member import Terms
from slurm_hooks.replay.world.planners import Nothing, Planner, Shipped
from slurm_hooks.replay.world.world import World
from slurm_hooks.settings.values import Mode, Settings
from slurm_hooks.tick.entry_points import find_objective

POLICIES = ("default", "oracle", "learned", "none")
ENDS = ("planned", "unknown")
LONGEST_LULL_S = 90.0 * UNITS_S["d"]
"""A single wrong date makes a log decades long. A replay decides twice a minute all that time."""
PARTS = "parts"
"""The partition of jobs that count GPUs, where the settings name none."""
SLURM = Slurm(
    (23, 11, 0),
    kill_wait=timedelta(seconds=30),
    min_job_age=timedelta(seconds=300),
    max_array_size=1_001,
    max_job_count=1_000_000,
)
"""Slurm's defaults, but for a number of jobs that is never too small."""


@dataclass(frozen=True)
class Source:
    """The source of the record: `kind` is idle, slots, swf or sacct."""

    kind: str
    path: Path
    columns: Optional[tuple[int, int]] = None
    machine: str = ""
    skip_bad: bool = False


@dataclass(frozen=True)
class Conditions:
    """The conditions of every line of a replay.

    With `shares_family`, jobs of a model share their rates. Fragments have a multiple of `unit`
    GPUs of a node, or whole nodes if it is 0. Without manners, jobs ignore where other jobs would
    be packed. Each job has `core` more nodes, which are in no record.
    """

    queue: Queue
    jobs: int
    rescale: Rescale
    t_fwd_s: float
    tick_s: float
    latency_s: float
    checkpoint_s: float
    objective: str = ""  # empty: the objective of the settings
    ends: str = "planned"
    redoes_planned: bool = False
    shares_family: bool = False
    unit: int = 0
    has_manners: bool = True
    core: int = 0


def load(source: Source, tell: Callable[[str], None]) -> Record:
    """Read the log. Raises BadLog, UsageError."""
    log = Log(source.path, source.skip_bad, tell)
    if source.kind == "idle":
        return read_idle(log, source.columns)
    if source.kind == "slots":
        return read_slots(log)
    if source.kind == "sacct":
        return read_sacct(log, source.machine)
    workload = read_swf(log)
    placed = place(workload.jobs, workload.nodes, workload.window_s)
    return replace(placed.record, skipped=log.skipped)


def window(record: Record, from_s: Optional[float], to_s: Optional[float]) -> Record:
    """The part of the record from `from_s` to `to_s`. Raises UsageError if it is empty, or has a
    lull of more than `LONGEST_LULL_S`, or if its log probably begins later."""
    start = record.from_s if from_s is None else max(from_s, record.from_s)
    end = record.to_s if to_s is None else min(to_s, record.to_s)
    if end <= start:
        raise UsageError(
            f"--from {start:g} --to {end:g}: the log has {record.from_s:g} to {record.to_s:g} s"
        )
    part = record if (start, end) == (record.from_s, record.to_s) else record.between(start, end)
    _refuse_lull(part)
    if from_s is None and record.quiet_until_s:
        raise UsageError(
            f"hardly any job starts before {record.quiet_until_s:.15g} s of the log, so a machine "
            "looks idle until then: give sacct --truncate, because without it jobs have their "
            "true start, or give --from if that time was as quiet"
        )
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


def shortest_gap_s(settings: Settings) -> float:
    """The shortest gap between two ordinary jobs that pays for a start, for most jobs."""
    lease = settings.lease
    return lease.margin_s + SLURM.kill_wait.total_seconds() + lease.shortest_hole_s


def run(
    name: str,
    record: Record,
    conditions: Conditions,
    settings: Settings,
    tell: Callable[[float], None] = lambda share: None,
) -> Outcome:
    """Run a line: the policy of that name over the record."""
    planner = planner_of(name, conditions, settings)
    known = _with_ends(name, record, conditions)
    return world_of(known, conditions, settings, planner).run(tell)


def planner_of(name: str, conditions: Conditions, settings: Settings) -> Planner:
    """The planner of that policy."""
    if name == "none":
        return Nothing()
    shipped = Shipped(find_objective(conditions.objective or settings.plan.objective))
    return Learner(shipped) if name == "learned" else shipped


def _with_ends(name: str, record: Record, conditions: Conditions) -> Record:
    """The record in which ends become known at the time for the policy."""
    if name == "oracle":
        known_s = -math.inf
    elif conditions.ends == "unknown":
        known_s = math.inf
    else:
        return record
    return replace(record, intervals=tuple(replace(i, known_s=known_s) for i in record.intervals))


def world_of(record: Record, conditions: Conditions, settings: Settings, planner: Planner) -> World:
    """The machine of the record, under the settings and the conditions."""
    rescale, grain = conditions.rescale, Grain(record.slots, conditions.unit)
    plan = replace(
        settings.plan,
        horizon_s=conditions.t_fwd_s,
        grow_s=rescale.up_s,
        shrink_s=rescale.down_s,
    )
    tick = replace(settings.tick, every_s=conditions.tick_s)
    mode = Mode("on", max_nodes=_ceiling(settings.mode, record.nodes))
    terms = Terms(
        with_parts(replace(settings, plan=plan, tick=tick, mode=mode), grain),
        SLURM,
        calendar_of(plan.patience_s),
        grain,
        conditions.redoes_planned,
        conditions.has_manners,
        conditions.core,
    )
    costs = Costs(rescale, conditions.latency_s, conditions.checkpoint_s, conditions.redoes_planned)
    work = (grain.queue(conditions.queue), conditions.jobs)
    return World(record, work, planner, terms, costs)


def with_parts(settings: Settings, grain: Grain) -> Settings:
    """The settings, with parts of nodes if these jobs use parts."""
    site = settings.site
    if site.part_nodes or not grain.unit:
        return settings
    site = replace(site, partitions=(*site.partitions, PARTS), part_nodes=PARTS)
    return replace(settings, site=site)


def _ceiling(mode: Mode, nodes: int) -> int:
    """The most nodes that malleable jobs may have on a machine of this size, 0 without a limit."""
    share = max(1, int(mode.max_share * nodes + 1e-9)) if mode.max_share < 1 else 0
    given = [most for most in (mode.max_nodes, share) if most]
    return min(given, default=0)
