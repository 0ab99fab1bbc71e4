"""Spans since moments that Slurm told: its clock may be set back, and then they lie ahead."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Optional


def is_within(now: datetime, since: Optional[datetime], span: timedelta) -> bool:
    """True if `since` is less than `span` ago. A moment to come counts as long ago: a clock that
    was set back must not make anybody wait for it to catch up."""
    return since is not None and timedelta(0) <= now - since < span
