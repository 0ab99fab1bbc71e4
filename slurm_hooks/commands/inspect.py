"""`malleable status`, `explain`, `plan`: what there is, why, and what comes next; read-only."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from slurm_hooks.commands.console import add_command, err, known_job, live, out
from slurm_hooks.errors import CommandRefused, RetryLater
from slurm_hooks.harvest.lives import Hits
from slurm_hooks.last_tick import find_last_tick, silence
from slurm_hooks.learning.connect import is_there, learned_path
from slurm_hooks.learning.connect import reading as reading_learned
from slurm_hooks.learning.read import job_profile
from slurm_hooks.ledger.connect import Unusable, ledger_path, reading
from slurm_hooks.ledger.read import hits_of
from slurm_hooks.model import MalleableJob
from slurm_hooks.planning.modes import mode_lines
from slurm_hooks.plural import plural
from slurm_hooks.reconcile import rehearse, tick
from slurm_hooks.report.hints import hints
from slurm_hooks.report.json_data import json_text, plan_data, told
from slurm_hooks.report.learned_text import learned_lines, look_line
from slurm_hooks.report.lost_work import lost_work
from slurm_hooks.report.text import (
    explain_lines,
    fragments_table,
    jobs_table,
    print_lines,
    solve_line,
    tick_lines,
)
from slurm_hooks.report.tick import TickReport
from slurm_hooks.settings import Settings
from slurm_hooks.settings_file import load
from slurm_hooks.slurm.gateway import observe, read_remarks
from slurm_hooks.slurm.site_nodes import with_host_lists
from slurm_hooks.slurm.site_policy import unknown_users
from slurm_hooks.snapshot.file import read, save
from slurm_hooks.switch import with_switch

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands

_log = logging.getLogger(__name__)


def add(commands: Commands) -> None:
    """Add these commands to the parser."""
    add_command(commands, "status", _status, "malleable jobs and their fragments", "optional")
    add_command(commands, "explain", _explain, "why a job has the size it has", "needed")
    parser = add_command(commands, "plan", _plan, "what the next tick would do; changes nothing")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--snapshot", type=Path, metavar="FILE", help="plan from FILE instead of asking Slurm"
    )
    source.add_argument(
        "--save", type=Path, metavar="FILE", help="also write what was seen to FILE"
    )


def _status(arguments: argparse.Namespace) -> int:
    settings = with_host_lists(load(arguments.settings))
    snapshot = observe(live(settings), settings.site.partitions)
    snapshot = with_switch(snapshot, settings.tick.state_dir, is_reading=True)
    if arguments.job is None:
        if arguments.json:
            seen = {"jobs": snapshot.jobs, "unknown": snapshot.unknown, "off": snapshot.off}
            print(json_text({**seen, "last_tick": find_last_tick(settings)}))
        elif snapshot.jobs:
            out.print(jobs_table(snapshot))
        else:
            print_lines(out, ["no malleable jobs"])
        if not arguments.json:
            silent = silence(settings, snapshot.jobs)
            lines = (*snapshot.unknown, *mode_lines(snapshot, settings), silent)
            print_lines(err, filter(None, lines))
        return 0
    job = known_job(snapshot, arguments.job)
    if arguments.json:
        print(json_text(told(job)))
    else:
        out.print(fragments_table(job, snapshot.now))
        print_lines(err, filter(None, [silence(settings, snapshot.jobs)]))
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    report = tick(live(settings), settings, is_dry=True)
    job = known_job(report.snapshot, arguments.job)
    remarks = _remarks(settings, job.job_id)
    lost = lost_work(job, _hits(settings, job.job_id))
    known = known_lines(settings, report, job)
    lines = explain_lines(job, report.plan, report.at, remarks, lost.advice, known)
    lines += filter(None, [silence(settings, report.snapshot.jobs)])
    if arguments.json:
        planned = next((p for p in report.plan.jobs if p.job_id == job.job_id), None)
        data = {
            "job": job,
            "lines": lines,
            "reasons": planned.reasons if planned else (),
            "hints": hints(job),
            "remarks": remarks,
            "checkpoints": lost,
            "last_tick": find_last_tick(settings),
            "learned": report.snapshot.learned.get(job.job_id),
        }
        print(json_text(data))
    else:
        print_lines(out, lines)
    return 0


def known_lines(settings: Settings, report: TickReport, job: MalleableJob) -> list[str]:
    """What has been learned of a job, as far as this user may read it."""
    if not settings.learn.enabled:
        return ["learned: nothing, since learn.enabled is false: all jobs share equally"]
    profile, unread = None, ""
    try:
        with reading_learned(settings) as database:
            profile = job_profile(database, job.job_id)
    except (Unusable, OSError) as error:
        unread = str(error) if is_there(learned_path(settings)) else ""
    learned = report.snapshot.learned.get(job.job_id)
    lines = learned_lines(job, learned, profile, report.at.timestamp())
    spared = next((p.spared for p in report.plan.jobs if p.job_id == job.job_id), None)
    if unread:
        lines.append(f"learned: what ticks know of it cannot be read here: {unread}")
    elif job.active and spared and job.tells_rates:
        lines.append(look_line(spared, settings.learn.probe_budget))
    return lines


def _remarks(settings: Settings, job_id: int) -> tuple[str, ...]:
    """Empty if Slurm has just forgotten the job or is busy: the rest is worth printing."""
    try:
        return read_remarks(live(settings), job_id)
    except (CommandRefused, RetryLater) as error:
        _log.debug("job %d: its remarks were not read: %s", job_id, error)
        return ()


def _hits(settings: Settings, job_id: int) -> Optional[Hits]:
    """None where there is no ledger, or only the tick's user may read it."""
    path = ledger_path(settings.tick.state_dir)
    try:
        with reading(path) as ledger:
            return hits_of(ledger, job_id)
    except (Unusable, OSError) as error:
        _log.debug("job %d: its hits were not read in %s: %s", job_id, path, error)
        return None


def _plan(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    if arguments.snapshot:
        report = rehearse(read(arguments.snapshot), settings)
    else:
        report = tick(live(settings), settings, is_dry=True)
    if arguments.save:
        save(report.snapshot, arguments.save)
    if arguments.json:
        print(json_text(plan_data(report.plan)))
        return 0
    for job in report.plan.jobs:
        print_lines(
            out, [f"job {job.job_id}: {job.nodes_now} -> {plural(job.nodes_planned, 'node')}"]
        )
        print_lines(out, [f"  {reason}" for reason in job.reasons])
    strangers = () if arguments.snapshot else unknown_users(settings.mode.users)
    notes = [f"note: mode.users: this host knows no user {name}" for name in strangers]
    print_lines(out, [*tick_lines(report)[:-1], *notes, solve_line(report.plan.solve)])
    return 0
