"""Runs a tick: lock, observe, plan, check and write in two halves, report.

A tick may run twice, be missed, or be killed at any line, since the truth is in Slurm and every
tick starts there. Decisions are made in planning.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Callable

from slurm_hooks.model import Level, Plan, Snapshot, Verb
from slurm_hooks.model.moments import plural
from slurm_hooks.model.unused import Unused, unused_of
from slurm_hooks.planning.check import Half, check
from slurm_hooks.planning.plan import make_plan, with_summaries
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.gateway import read_again, read_jobs, read_jobs_again
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.part_nodes import LaneNames
from slurm_hooks.slurm.writing import apply
from slurm_hooks.tick.entry_points import find_objective
from slurm_hooks.tick.lock import Outcome, locked
from slurm_hooks.tick.observe import observe_all
from slurm_hooks.tick.report import TickReport, lacks_rights
from slurm_hooks.tick.switch import with_switches

_log = logging.getLogger(__name__)


def tick(
    port: Port,
    settings: Settings,
    is_dry: bool = False,
    announce: Callable[[str], None] = lambda command: None,
    sum_up: Callable[[Snapshot, Plan], Mapping[int, str]] = lambda seen, plan: {},
) -> TickReport:
    """Run a tick. With `is_dry` it needs no lock and does not write.

    `announce` is called before each write, for tests and progress displays. `sum_up` returns a line
    about each job that a plan closes. In the mode that only observes, the tick does not write
    either, and counts as completed.

    Raises RetryLater if Slurm does not answer or another tick runs, NoTickForLong if that has
    lasted for minutes. Raises SettingsError if it cannot read whether malleable jobs are switched
    off.
    """
    began = time.monotonic()
    before = len(port.asked)
    refused: list[str] = []
    objective = find_objective(settings.plan.objective)
    lock = contextlib.nullcontext(Outcome()) if is_dry else locked(settings.tick)
    with lock as outcome, _uncollected():
        seen = observe_all(port, settings, is_dry)
        plan = make_plan(seen, settings, time.monotonic, objective)
        is_dry = is_dry or plan.level is Level.OBSERVE
        plan, newest = _checked(port, plan, Half.FIRST, seen, settings)
        _log.debug("planned: %s by %s", plural(len(plan.actions), "action"), plan.solve.solver)
        if not is_dry:
            plan = with_summaries(plan, seen, sum_up(seen, plan))
            plan, refused = _write(port, newest, plan, settings, announce)
            outcome.is_completed = not lacks_rights(refused)
    asked = tuple(port.asked[before:])
    seconds = time.monotonic() - began
    unused = _unused(seen, settings)
    return TickReport(seen.now, plan, seen, tuple(refused), asked, seconds, is_dry, unused)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Stop garbage collection for a tick, since all its objects live until its end.

    Collecting them repeatedly took a third of its time (19,200 fragments).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _write(
    port: Port, seen: Snapshot, plan: Plan, settings: Settings, announce: Callable[[str], None]
) -> tuple[Plan, list[str]]:
    """Write a plan. Return it without intents that no longer held, and Slurm's refusals."""
    refused = apply(port, seen, Half.FIRST.of(plan.actions), announce)
    plan, seen = _checked(port, plan, Half.SECOND, seen, settings)
    return plan, refused + apply(port, seen, Half.SECOND.of(plan.actions), announce)


def _checked(
    port: Port, plan: Plan, half: Half, seen: Snapshot, settings: Settings
) -> tuple[Plan, Snapshot]:
    """Return the plan as it may be written now, and the newest reading.

    If nothing has to be read again, both are as before.
    """
    if not half.needs_check(plan.actions):
        return plan, seen
    fresh = _read_again(port, plan, half, seen, settings)
    return check(plan, half, seen, fresh, settings), fresh


def _read_again(port: Port, plan: Plan, half: Half, seen: Snapshot, settings: Settings) -> Snapshot:
    """Read nodes and clock again for the first half, our jobs and the switches for the second.

    If some fragments start, all jobs are read, whose planned starts matter then.
    """
    site = settings.site
    if half is Half.FIRST:
        return read_again(port, seen, LaneNames(site.partitions, site.part_nodes))
    if any(i.verb is Verb.GROW for i in plan.actions):
        fresh = read_jobs_again(port, seen, site.partitions, site.qos)
    else:
        fresh = replace(seen, jobs=read_jobs(port, site.partitions, seen.jobs))
    return with_switches(fresh, settings.tick.state_dir, is_reading=False)


def rehearse(seen: Snapshot, settings: Settings) -> TickReport:
    """Plan for a snapshot that was taken elsewhere, without asking Slurm."""
    began = time.monotonic()
    objective = find_objective(settings.plan.objective)
    plan = make_plan(seen, settings, time.monotonic, objective)
    seconds, unused = time.monotonic() - began, _unused(seen, settings)
    return TickReport(seen.now, plan, seen, (), (), seconds, is_dry=True, unused=unused)


def _unused(seen: Snapshot, settings: Settings) -> dict[str, Unused]:
    return unused_of(seen, frozenset(settings.site.partitions))
