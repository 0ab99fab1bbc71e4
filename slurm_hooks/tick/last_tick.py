"""Finds the time of the last tick, as far as this user can see it on this host.

The lock's date shows it to the tick's user. The ledger's date shows it to all others, since every
tick writes the ledger. A reader changes neither the ledger nor the content of its log of changes.
Other hosts than the ticks' may know neither.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Optional

from slurm_hooks.history.place import beside, ledger_path
from slurm_hooks.model import MalleableJob
from slurm_hooks.model.moments import age_text, moment, shown
from slurm_hooks.settings.values import Settings
from slurm_hooks.tick.lock import stamp_path

_INTERVALS, _LEAST_S = 2, 60.0  # without a tick, before it costs a line: Slurm may answer slowly


def find_last_tick(settings: Settings) -> Optional[datetime]:
    """The time of the last tick. None if this host knows of no tick."""
    ledger = ledger_path(settings.tick.state_dir)
    changes, _shared = beside(ledger)
    dates = []
    for path in (stamp_path(settings.tick), ledger, changes):
        with contextlib.suppress(OSError):
            seen = path.stat()
            if path is not changes or seen.st_size:  # a reader makes an empty file
                dates.append(seen.st_mtime)
    return moment(max(dates)) if dates else None


def is_silent(silent_s: float, every_s: float) -> bool:
    """Tell whether so many seconds without a tick are too many at this interval."""
    return silent_s > max(_INTERVALS * every_s, _LEAST_S)


def silence(settings: Settings, jobs: Iterable[MalleableJob] = ()) -> str:
    """Return a line if no tick has come for two intervals and a minute, else an empty string.

    Where this host knows of no tick, `jobs` may show that ticks run elsewhere.
    """
    last, now = find_last_tick(settings), moment(time.time())
    every_s = settings.tick.every_s
    if last is None:
        is_elsewhere = any(_was_touched(job) for job in jobs)
        if is_elsewhere:
            return ""
        return "this host does not know of a tick: if your job stays held, ask your administrator"
    silent_s = abs((now - last).total_seconds())
    if not is_silent(silent_s, every_s):
        return ""
    return (
        f"no tick for {age_text(silent_s)}, since {shown(last, now)} (expected every "
        f"{every_s:g} s): no job can start or grow"
    )


def steady_silence(settings: Settings) -> str:
    """Return the same line without the age, for output that is printed again at each change."""
    last, every_s = find_last_tick(settings), settings.tick.every_s
    if last is None or not silence(settings):
        return ""  # a login host may know of no tick
    now = moment(time.time())
    return f"no tick since {shown(last, now)} (expected every {every_s:g} s)"


def _was_touched(job: MalleableJob) -> bool:
    return any(f.mark.released or f.nodes or f.mark.stopped for f in job.fragments)
