"""`malleable status`, `explain`, `plan`: show jobs, reasons, and the next tick, read-only."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from slurm_hooks.commands.console import add_command, err, known_job, live, out
from slurm_hooks.errors import CommandRefused, RetryLater
from slurm_hooks.history.database import Unusable, reading
from slurm_hooks.history.harvest.jobs import Interruptions, Loop
from slurm_hooks.history.place import ledger_path
from slurm_hooks.history.questions import interruptions_of, loop_in
from slurm_hooks.model import MalleableJob, Snapshot
from slurm_hooks.model.decision import JobPlan
from slurm_hooks.model.moments import plural, sized
from slurm_hooks.model.snapshot.file import read, save
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.modes import mandate_of
from slurm_hooks.planning.trouble import idle_fragments
from slurm_hooks.report.hints import hints
from slurm_hooks.report.json_data import job_data, json_text, plan_data, reason_data
from slurm_hooks.report.learned_text import learned_lines
from slurm_hooks.report.lost_work import loop_lines, lost_work
from slurm_hooks.report.tables import print_lines, print_tables
from slurm_hooks.report.text import (
    OVER,
    explain_lines,
    fragments_table,
    job_state,
    jobs_table,
    no_parts_lines,
    remark_lines,
    solve_line,
    tick_lines,
)
from slurm_hooks.report.why import note_text, reason_text
from slurm_hooks.settings.file import load
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.gateway import read_remarks
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.remarks import names_command, parse_names
from slurm_hooks.slurm.strays import lines_about
from slurm_hooks.tick.last_tick import find_last_tick, silence
from slurm_hooks.tick.reconcile import rehearse, tick
from slurm_hooks.tick.report import TickReport

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands

_log = logging.getLogger(__name__)


def add(commands: Commands) -> None:
    """Add these commands to the parser."""
    text = "list malleable jobs, or the fragments of a job"
    parser = add_command(commands, "status", _status, text, "optional")
    parser.add_argument("--all", action="store_true", help="list jobs that have ended too")
    parser.add_argument("--user", default="", metavar="USER", help="list only this user's jobs")
    add_command(commands, "explain", _explain, "explain the size of a job", "needed")
    parser = add_command(commands, "plan", _plan, "print the plan of the next tick, change nothing")
    parser.add_argument("--all", action="store_true", help="list jobs that keep their size too")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--snapshot", type=Path, metavar="FILE", help="plan from FILE instead of asking Slurm"
    )
    source.add_argument(
        "-o", "--save", type=Path, metavar="FILE", help="also write Slurm's answers to FILE"
    )


def _status(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    port = live(settings)
    report = tick(port, settings, is_dry=True)
    snapshot = report.snapshot
    if arguments.job is not None:
        return _show_job(known_job(snapshot, arguments.job), snapshot, settings, arguments.json)
    of_user = [job for job in snapshot.jobs if arguments.user in ("", job.user)]
    jobs = [job for job in of_user if arguments.all or job_state(job) not in OVER]
    names = _names(port, settings)
    reasons = {j.job_id: _why(j, report.at) for j in report.plan.jobs}
    if arguments.json:
        print(json_text(_jobs_data(jobs, names, reasons, snapshot, settings)))
        return 0
    if jobs:
        print_tables(out, jobs_table(jobs, snapshot.now, names, reasons, out.width))
    else:
        print_lines(out, ["no malleable jobs"])
    ended = len(of_user) - len(jobs)
    notes = [f"{plural(ended, 'ended job')} left out: --all shows them"] if ended else []
    notes += [
        *snapshot.unknown,
        *no_parts_lines(snapshot),
        *map(note_text, mandate_of(Ground(snapshot, settings)).notes(snapshot)),
        silence(settings, snapshot.jobs),
    ]
    print_lines(err, filter(None, notes))
    return 0


def _show_job(job: MalleableJob, seen: Snapshot, settings: Settings, is_json: bool) -> int:
    if is_json:
        print(json_text(job_data(job)))
        return 0
    print_tables(out, fragments_table(job, seen.now))
    idle = idle_fragments(Ground(seen, settings), job)
    print_lines(out, map(reason_text, idle))
    print_lines(out, remark_lines(read_remarks(live(settings), job.job_id)))
    print_lines(err, filter(None, [silence(settings, seen.jobs)]))
    return 0


def _jobs_data(
    jobs: Iterable[MalleableJob],
    names: Mapping[int, str],
    reasons: Mapping[int, str],
    seen: Snapshot,
    settings: Settings,
) -> dict[str, Any]:
    rows = [
        {**job_data(job), "name": names.get(job.job_id), "why": reasons.get(job.job_id)}
        for job in jobs
    ]
    last = find_last_tick(settings)
    return {
        "jobs": rows,
        "unknown": seen.unknown,
        "off": seen.off,
        "no_growth": seen.no_growth,
        "last_tick": last,
    }


def _names(port: Port, settings: Settings) -> Mapping[int, str]:
    """The names of jobs, empty if Slurm does not answer, since the rest is worth printing."""
    try:
        return parse_names(port.ask(names_command(settings.site.partitions)))
    except (CommandRefused, RetryLater) as error:
        _log.debug("names of jobs were not read: %s", error)
        return {}


def _why(job: JobPlan, now: datetime) -> str:
    """The strongest limit on the job."""
    if job.nodes_planned != job.nodes_now:
        return f"the next tick takes it to {sized(job.nodes_planned, job.unit)}"
    return reason_text(job.reasons[0], now, job.unit) if job.reasons else ""


def _explain(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    report = tick(live(settings), settings, is_dry=True)
    job = known_job(report.snapshot, arguments.job)
    remarks = read_remarks(live(settings), job.job_id)
    interruptions, loop = _of_ledger(settings, job.job_id, report.at)
    lost = lost_work(job, interruptions)
    known = known_lines(settings, report, job)
    advice = (*loop_lines(loop, job.request), *lost.advice)
    lines = explain_lines(job, report.plan, report.at, remarks, advice, known)
    lines += lines_about(job.job_id, report.snapshot.unknown)
    lines += filter(None, [silence(settings, report.snapshot.jobs)])
    if arguments.json:
        planned = next((p for p in report.plan.jobs if p.job_id == job.job_id), None)
        data = {
            "job": job_data(job),
            "lines": lines,
            "reasons": _reasons_data(planned, report.at),
            "hints": hints(job),
            "remarks": remarks,
            "checkpoints": lost,
            "preemptions": loop,
            "last_tick": find_last_tick(settings),
            "learned": report.snapshot.learned.get(job.job_id),
        }
        print(json_text(data))
    else:
        print_lines(out, lines)
    return 0


def _reasons_data(planned: Optional[JobPlan], now: datetime) -> list[dict[str, Any]]:
    if planned is None:
        return []
    return [reason_data(reason, now, planned.unit) for reason in planned.reasons]


def known_lines(settings: Settings, report: TickReport, job: MalleableJob) -> list[str]:
    """Lines on how a job scales. Empty for a job that has ended, and for an engine that does not
    report its speed."""
    if job_state(job) in OVER or not job.tells_rates:
        return []
    if not settings.learn.enabled:
        return ["learned: learn.enabled is false, so nodes are shared equally"]
    learned = report.snapshot.learned.get(job.job_id)
    return learned_lines(job, learned, report.at.timestamp())


def _of_ledger(
    settings: Settings, job_id: int, now: datetime
) -> tuple[Optional[Interruptions], Optional[Loop]]:
    """Read the ledger, None without a ledger, or if only the tick's user may read it."""
    path = ledger_path(settings.tick.state_dir)
    try:
        with reading(path) as ledger:
            return interruptions_of(ledger, job_id), loop_in(ledger, job_id, now)
    except (Unusable, OSError) as error:
        _log.debug("job %d: its interruptions were not read in %s: %s", job_id, path, error)
        return None, None


def _plan(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    if arguments.snapshot:
        report = rehearse(read(arguments.snapshot), settings)
    else:
        report = tick(live(settings), settings, is_dry=True)
    if arguments.save:
        save(report.snapshot, arguments.save)
    if arguments.json:
        print(json_text(plan_data(report.plan, report.at)))
        return 0
    shown = [j for j in report.plan.jobs if arguments.all or j.nodes_now != j.nodes_planned]
    for job in shown:
        print_lines(
            out, [f"job {job.job_id}: {job.nodes_now} -> {sized(job.nodes_planned, job.unit)}"]
        )
        print_lines(
            out, [f"  {reason_text(reason, report.at, job.unit)}" for reason in job.reasons]
        )
    if not shown:
        print_lines(out, ["no job changes its size"])
    print_lines(out, [*tick_lines(report)[:-1], solve_line(report.plan.solve)])
    return 0
