"""Connects a tick with the learned knowledge. Never fails a tick.

Before the plan, `recall` reads once, within a bounded time. After it, `remember` writes the jobs'
reports down and learns from them, for the next tick.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from slurm_hooks.books.storage.database import Damaged, Unusable
from slurm_hooks.books.storage.place import make_place, set_aside
from slurm_hooks.learning.learned import learn
from slurm_hooks.learning.prior import prior_of
from slurm_hooks.learning.store.connect import learned_path, protect, reading, writing
from slurm_hooks.learning.store.drop import prune
from slurm_hooks.learning.store.family import family_of
from slurm_hooks.learning.store.intake import in_turn, report_of
from slurm_hooks.learning.store.read import learned_of
from slurm_hooks.learning.store.relearn import refit
from slurm_hooks.learning.store.write import Present, put
from slurm_hooks.model import Learned, MalleableJob, Snapshot
from slurm_hooks.model.gpu_types import GpuTypes
from slurm_hooks.model.plural import plural
from slurm_hooks.settings.values import Settings

_log = logging.getLogger(__name__)
DAY_S = 86_400
AT_ONCE_S = 0.1  # of processor time, for the reports of jobs without records
REFIT_S = 0.25  # the same, after a tick, when no job waits for it
_doubted: set[str] = set()
"""Files that a read found malformed. The next write reads them again."""
_held: dict[str, Mapping[int, Learned]] = {}
"""By file, the knowledge of this process's last tick, for a tick that cannot read the file. A job
whose curve comes and goes would be resized each time."""


def recall(seen: Snapshot, settings: Settings) -> Snapshot:
    """Return the snapshot with the knowledge about its jobs, as far as it can be read now.

    If there is no record of a job, its report is judged alone.
    """
    if not settings.learn.enabled:
        return replace(seen, learned={})
    known = _read(seen, settings)
    try:
        more = _at_once(seen, known)
    except Exception:  # a bug here must not fail a tick
        _log.debug("the rates that jobs report were not read", exc_info=True)
        more = {}
    return replace(seen, learned={**known, **more})


def _read(seen: Snapshot, settings: Settings) -> Mapping[int, Learned]:
    path = str(learned_path(settings))
    try:
        if path not in _held and not learned_path(settings).exists():
            return {job.job_id: Learned() for job in seen.jobs}
        with reading(settings) as database:
            _held[path] = learned_of(database, seen)
    except (Unusable, OSError) as error:
        _log.debug("the learned rates in %s were not read: %s", path, error)
        if isinstance(error, Damaged):
            _doubted.add(path)
    except Exception:  # a bug here must not fail a tick
        _log.debug("the learned rates in %s were not read", path, exc_info=True)
    wanted = {job.job_id for job in seen.jobs}
    return {k: v for k, v in _held.get(path, {}).items() if k in wanted}


def _at_once(seen: Snapshot, learned: Mapping[int, Learned]) -> dict[int, Learned]:
    until = time.process_time() + AT_ONCE_S
    more = {}
    for job in in_turn(seen.jobs, lambda job: job.user):
        known = learned.get(job.job_id)
        if known is not None and (known.sizes_seen or known.curve):
            continue
        report = report_of(job)
        if report is None or not report.rates or time.process_time() > until:
            continue
        request = job.request
        sizes = (request.unit, request.max_nodes, request.min_nodes)
        more[job.job_id] = learn(report.rates, prior_of(), *sizes)
    return more


def remember(seen: Snapshot, settings: Settings) -> tuple[str, ...]:
    """Write down the reports of a tick's jobs, and learn from them. Return warnings of losses.

    If the file is damaged, it is moved aside, and a new file begins.
    """
    if not settings.learn.enabled or not seen.jobs:
        return ()
    path = learned_path(settings)
    lost = f"the speeds that jobs reported are not kept in {path}"
    moved: tuple[str, ...] = ()
    try:
        make_place(path)
        try:
            _raise_if_damaged(seen, settings)
            _write(seen, settings)
            return ()
        except Damaged as error:
            kept = set_aside(path)
            moved = (f"{path} was damaged ({error}): moved to {kept}, new file begun",)
        _write(seen, settings)
        return moved
    except (Unusable, OSError) as error:
        return (*moved, f"{lost}: {error}")
    except Exception as error:  # a bug here must not fail a tick that has done its work
        _log.debug("the learned rates were not written", exc_info=True)
        return (*moved, f"{lost}: {type(error).__name__}: {error}")


def _raise_if_damaged(seen: Snapshot, settings: Settings) -> None:
    """Read again where a read failed before, since writing alone may never touch the damage."""
    path = str(learned_path(settings))
    if path in _doubted:
        _doubted.discard(path)
        with reading(settings) as database:
            learned_of(database, seen)


def _write(seen: Snapshot, settings: Settings) -> None:
    now_s, chosen = seen.now.timestamp(), settings.learn
    until = time.process_time() + REFIT_S
    with writing(settings) as database:
        protect(settings)
        prune(database, now_s, chosen.keep_days * DAY_S, chosen.max_mib)
        types = GpuTypes(seen.nodes)
        put(database, [_present(job, types.of(job)) for job in seen.jobs], now_s)
        done, waiting = refit(database, now_s, lambda: time.process_time() < until)
    if waiting:
        _log.debug("learned %s, %d left for the next tick", plural(done, "job"), waiting)


def _present(job: MalleableJob, gres: str) -> Present:
    request = job.request
    return Present(
        job.job_id,
        family_of(job, gres),
        request.min_nodes,
        request.max_nodes,
        len(job.nodes),
        report_of(job),
    )
