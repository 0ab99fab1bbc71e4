"""Moments that Slurm tells, and spans since them: a clock set back puts them in the future."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.model import Fragment, Slurm


def is_within(now: datetime, since: Optional[datetime], span: timedelta) -> bool:
    """True if `since` is less than `span` ago. A moment to come counts as long ago: a clock that
    was set back must not make anybody wait for it to catch up."""
    return since is not None and timedelta(0) <= now - since < span


def requeue_of(fragment: Fragment, slurm: Slurm) -> Optional[datetime]:
    """When the last run of a waiting fragment ended in a requeue: Slurm makes it wait from then."""
    return fragment.eligible and fragment.eligible - slurm.requeue_wait
