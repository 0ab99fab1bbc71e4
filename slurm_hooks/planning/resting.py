"""Decides how long a fragment rests between two runs, and a job between two changes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.model import WAITING_STATES, Fragment, FragmentState, MalleableJob, Slurm
from slurm_hooks.model.ends import is_death, requeue_of
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.moments import is_within

# Slurm makes a requeued job wait for as long as credentials live. A node refuses a credential that
# is not newer than the end of the job's last run there, in whole seconds ("Job credential revoked",
# 22.05). We shorten that wait, but not to zero.
REST = timedelta(seconds=3)


def is_rested(ground: Ground, fragment: Fragment) -> bool:
    """Tell whether a held fragment's last run ended some time ago."""
    if fragment.state not in WAITING_STATES:
        return False
    if fragment.state is FragmentState.SPECIAL and is_death(fragment):
        return False  # first its end is recorded
    if is_within(ground.now, fragment.mark.noticed, REST):
        return False
    return not is_within(ground.now, requeue_of(fragment, ground.slurm), REST)


def snoozes(ground: Ground, job: MalleableJob) -> bool:
    """Tell whether a job rests: a gang after any change, a pool only after a failure.

    In a large pool workers come and go all the time.
    """
    span = timedelta(seconds=ground.settings.plan.snooze_s)
    if job.way.works_as_one:
        return any(is_within(ground.now, f.mark.noticed, span) for f in job.fragments)
    deaths = (a.since for f in job.stirring for a in f.mark.deaths)
    return job.failures > 0 and any(is_within(ground.now, since, span) for since in deaths)


def rest_s(ground: Ground, job: MalleableJob) -> float:
    """The seconds for which the job is still to run undisturbed after its last change."""
    span = job.request.min_run
    if not span:
        return 0.0
    changes = (when for f in job.stirring for when in _changes(f, ground.slurm))
    recent = (ground.now - w for w in changes if w is not None and is_within(ground.now, w, span))
    return (span - min(recent, default=span)).total_seconds()


def _changes(fragment: Fragment, slurm: Slurm) -> Iterator[Optional[datetime]]:
    """The moments when it started and left."""
    yield fragment.start if fragment.is_active else requeue_of(fragment, slurm)
    yield fragment.mark.noticed
