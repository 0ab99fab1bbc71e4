"""Runs a tick for commands, and writes it into the ledger, and from there into the metrics.

The books never fail a tick: any error there costs a line of warning.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Optional

from slurm_hooks.errors import MalleableError
from slurm_hooks.history.database import Damaged, Unusable, reading, writing
from slurm_hooks.history.harvest.derive import record_of
from slurm_hooks.history.harvest.jobs import lines_after
from slurm_hooks.history.harvest.totals import Standing
from slurm_hooks.history.harvest.values import Cost
from slurm_hooks.history.ledger import known_lines, last_seen, prune, without_account, write
from slurm_hooks.history.place import ledger_path, make_place, set_aside
from slurm_hooks.history.questions import standing
from slurm_hooks.model import Plan, Snapshot, Why
from slurm_hooks.planning.plan import ending_jobs
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.gateway import read_accounts
from slurm_hooks.slurm.live import Port
from slurm_hooks.tick.reconcile import tick
from slurm_hooks.tick.report import TickReport

_log = logging.getLogger(__name__)
DAY_S = 86_400


def booked_tick(port: Port, settings: Settings) -> tuple[TickReport, tuple[str, ...]]:
    """Run a tick and book it. Return the report, and warnings about everything not written.

    Raises as `tick` does.
    """
    report = tick(port, settings, sum_up=partial(summaries, settings))
    lines = keep_books(report, settings, port)
    return report, tuple(f"malleable: warning: {line}" for line in lines)


def keep_books(report: TickReport, settings: Settings, port: Port) -> tuple[str, ...]:
    """Write a tick into the ledger, then the metrics. Return warnings about everything not written.

    For a tick that only observed, the ledger gets its observations without actions.
    """
    if not settings.ledger.enabled:
        return ()
    ledger_state, lines = _book(report, settings, port)
    return (*lines, *_tell(ledger_state, settings))


def summaries(settings: Settings, seen: Snapshot, plan: Plan) -> dict[int, str]:
    """Return a line for each job that a plan closes, as far as the ledger knows it."""
    closing = ending_jobs(plan)
    if not (closing and settings.ledger.enabled and settings.ledger.summary):
        return {}
    try:
        with reading(ledger_path(settings.tick.state_dir)) as ledger:
            last = last_seen(ledger)
            record = record_of(last, seen, plan, Cost(0, 0, 0, 0, 0), settings)
            known = {i: line for i, (_, line) in known_lines(ledger, record).items() if line}
        lines = lines_after(known, record)
        return {job_id: lines[job_id].summary for job_id in closing if job_id in known}
    except Exception as error:  # a missing line must not fail a tick
        _log.debug("no summaries: %s", error)
        return {}


def _book(
    report: TickReport, settings: Settings, port: Port
) -> tuple[Optional[Standing], tuple[str, ...]]:
    """Return the ledger's state after this tick, None if it cannot be read, and the errors."""
    where = ledger_path(settings.tick.state_dir)
    lost = f"this tick is not in the ledger {where}"
    moved: tuple[str, ...] = ()
    try:
        path = make_place(where)
        try:
            return _write(path, report, settings, port), ()
        except Damaged as error:
            kept = set_aside(path)
            moved = (f"the ledger {path} was damaged ({error}): moved to {kept}, new file begun",)
        return _write(path, report, settings, port), moved
    except Unusable as error:
        return ledger_standing(settings), (*moved, f"{lost}: {error}")
    except OSError as error:  # do not read from a place that may not be ours
        return None, (*moved, f"{lost}: {error}")
    except Exception as error:  # a bug here must not fail a tick that has done its work
        _log.debug("the ledger was not written", exc_info=True)
        return None, (*moved, f"{lost}: {type(error).__name__}: {error}")


def ledger_standing(settings: Settings) -> Optional[Standing]:
    """The present state of the ledger. None if it cannot be read now."""
    try:
        with reading(ledger_path(settings.tick.state_dir)) as ledger:
            return standing(ledger)
    except Unusable as error:
        _log.debug("the ledger was not read: %s", error)
        return None


def _write(path: Path, report: TickReport, settings: Settings, port: Port) -> Standing:
    chosen = settings.ledger
    with writing(path, chosen.max_mib) as ledger:
        last = last_seen(ledger)
        new = without_account(ledger, (job.job_id for job in report.snapshot.jobs))
        accounts = _accounts(port, report.snapshot, new)
        plan = _as_done(report)
        record = record_of(last, report.snapshot, plan, _cost(report), settings)
        write(ledger, record, accounts)
        prune(ledger, report.at.timestamp(), chosen.keep_days * DAY_S, chosen.max_mib)
        return standing(ledger)


def _as_done(report: TickReport) -> Plan:
    """Return the plan without actions that did not happen.

    A tick that only observed, or lacked rights, has done no action. Single refusals by Slurm are
    rare, and count as done.
    """
    if report.is_dry:
        return replace(report.plan, actions=())
    if not report.lacks_rights:
        return report.plan
    idle = tuple(
        replace(each, reason=Why.NOT_GIVEN) if each.reason is Why.STARTING else each
        for each in report.plan.idle
    )
    return replace(report.plan, actions=(), idle=idle)


def _tell(ledger_state: Optional[Standing], settings: Settings) -> tuple[str, ...]:
    """Write the metrics to their file, if the site wants a file. Return a line if that fails."""
    textfile = settings.metrics.textfile
    if not textfile:
        return ()
    try:
        from slurm_hooks.history.metrics import text_of, write_textfile  # noqa: PLC0415

        write_textfile(Path(textfile), text_of(ledger_state, settings.metrics))
    except ImportError:
        needed = "needs the Python library prometheus_client: install slurm-malleable[metrics]"
        return (f"metrics.textfile {needed}",)
    except Exception as error:  # as with the ledger
        _log.debug("the metrics were not written", exc_info=True)
        return (f"metrics.textfile = {textfile!r}: cannot be written: {error}",)
    return ()


def _cost(report: TickReport) -> Cost:
    solver_s = report.plan.solve.seconds
    asked, refused = len(report.asked), len(report.refused)
    return Cost(report.seconds, solver_s, asked, report.rpcs, refused)


def _accounts(port: Port, seen: Snapshot, new: Iterable[int]) -> dict[int, str]:
    """The accounts of new jobs, or empty texts. If Slurm fails now, the next tick asks again."""
    known = {job.job_id: job.account for job in seen.jobs}
    wanted = [job_id for job_id in new if not known[job_id]]
    with contextlib.suppress(MalleableError):
        answers = read_accounts(port, seen.jobs) if wanted else {}
        known.update((job_id, answers.get(job_id, "")) for job_id in wanted)
        return known
    return {job_id: account for job_id, account in known.items() if account}
