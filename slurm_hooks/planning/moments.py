"""Compares Slurm's moments with the present. A clock set back puts them in the future."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.model import WAITING_STATES, Fragment, MalleableJob
from slurm_hooks.planning.ground import Ground


def is_within(now: datetime, since: Optional[datetime], span: timedelta) -> bool:
    """Tell whether `since` is less than `span` ago.

    A moment in the future counts as long ago. So no job waits until a clock that was set back has
    caught up.
    """
    return since is not None and timedelta(0) <= now - since < span


def noted_dependent(ground: Ground, job: MalleableJob) -> Optional[Fragment]:
    """The fragment to note on that its job waits for other jobs, not for nodes.

    Slurm does not say when that wait ends, so it is noted four times in a job's patience.
    """
    often = timedelta(seconds=ground.settings.plan.patience_s / 4)
    is_known = any(is_within(ground.now, f.mark.depended, often) for f in job.stirring)
    if is_known or not often or not any(f.depends for f in job.stirring):
        return None
    return next((f for f in job.fragments if f.state in WAITING_STATES), None)
