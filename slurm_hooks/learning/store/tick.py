"""What a tick asks of what is learned, and tells it. Never fails a tick.

Before the plan `recall`: one read, within a bounded time. After it `remember`: what jobs told is
written down and learned, for the next tick to find.
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
from slurm_hooks.learning.store.intake import in_turn, told_by
from slurm_hooks.learning.store.read import learned_of
from slurm_hooks.learning.store.relearn import refit
from slurm_hooks.learning.store.write import Present, put
from slurm_hooks.model import Learned, MalleableJob, Snapshot
from slurm_hooks.model.gpu_types import GpuTypes
from slurm_hooks.model.plural import plural
from slurm_hooks.settings.values import Settings

_log = logging.getLogger(__name__)
DAY_S = 86_400
AT_ONCE_S = 0.1  # of processor time, for jobs that tell something while nothing is known of them
REFIT_S = 0.25  # the same, after a tick, when nobody waits for it
_doubted: set[str] = set()
"""Files in which a read found nonsense: what is written has to look again."""
_held: dict[str, Mapping[int, Learned]] = {}
"""By file, what the last tick of this process found, for one that cannot read it now: jobs whose
curves come and go would be resized each time."""


def recall(seen: Snapshot, settings: Settings) -> Snapshot:
    """The snapshot with what is learned of its jobs, as far as it can be read now.

    Of a job of which nothing is kept, what it tells is looked at by itself.
    """
    if not settings.learn.enabled:
        return replace(seen, learned={})
    found = _read(seen, settings)
    try:
        more = _at_once(seen, found)
    except Exception:  # a bug here must not fail a tick
        _log.debug("what jobs tell was not looked at", exc_info=True)
        more = {}
    return replace(seen, learned={**found, **more})


def _read(seen: Snapshot, settings: Settings) -> Mapping[int, Learned]:
    path = str(learned_path(settings))
    try:
        if path not in _held and not learned_path(settings).exists():
            return {job.job_id: Learned() for job in seen.jobs}
        with reading(settings) as database:
            _held[path] = learned_of(database, seen)
    except (Unusable, OSError) as error:
        _log.debug("what is learned was not read in %s: %s", path, error)
        if isinstance(error, Damaged):
            _doubted.add(path)
    except Exception:  # a bug here must not fail a tick
        _log.debug("what is learned was not read in %s", path, exc_info=True)
    wanted = {job.job_id for job in seen.jobs}
    return {k: v for k, v in _held.get(path, {}).items() if k in wanted}


def _at_once(seen: Snapshot, found: Mapping[int, Learned]) -> dict[int, Learned]:
    until = time.process_time() + AT_ONCE_S
    more = {}
    for job in in_turn(seen.jobs, lambda job: job.user):
        known = found.get(job.job_id)
        if known is not None and (known.sizes_seen or known.curve):
            continue
        told = told_by(job)
        if told is None or not told.rates or time.process_time() > until:
            continue
        request = job.request
        sizes = (request.unit, request.max_nodes, request.min_nodes)
        more[job.job_id] = learn(told.rates, prior_of(), *sizes)
    return more


def remember(seen: Snapshot, settings: Settings) -> tuple[str, ...]:
    """Write down what the jobs of a tick told, and learn from it; lines of warning on what was not.

    A file that is damaged is moved aside, and a new one begun.
    """
    if not settings.learn.enabled or not seen.jobs:
        return ()
    path = learned_path(settings)
    lost = f"what jobs told about their speed is not kept in {path}"
    moved: tuple[str, ...] = ()
    try:
        make_place(path)
        try:
            _raise_if_damaged(seen, settings)
            _write(seen, settings)
            return ()
        except Damaged as error:
            kept = set_aside(path)
            moved = (f"{path} was damaged ({error}): moved to {kept}, begun anew",)
        _write(seen, settings)
        return moved
    except (Unusable, OSError) as error:
        return (*moved, f"{lost}: {error}")
    except Exception as error:  # a bug here must not fail a tick that has done its work
        _log.debug("what is learned was not written", exc_info=True)
        return (*moved, f"{lost}: {type(error).__name__}: {error}")


def _raise_if_damaged(seen: Snapshot, settings: Settings) -> None:
    """Look again at what a read stumbled over: writing alone may never come across it."""
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
        told_by(job),
    )
