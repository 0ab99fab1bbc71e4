"""The farewell: the time that a fragment has to save its state when Slurm ends it.

It is the site's `lease.farewell_s`. The job that wants the node waits at most that long. If the
farewell was too short, a file in the job's directory tells the next run.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Optional

from slurm_hooks.elastic.private_directory import job_directory

FAREWELL_S = 2.0
_NOTE = "farewell-too-short"


def farewell_s(env: Mapping[str, str]) -> float:
    """Return seconds from SIGTERM on, by MALLEABLE_FAREWELL_S. A text that is no number from 0 to
    60 counts as missing.
    """
    return _seconds(env.get("MALLEABLE_FAREWELL_S", ""), FAREWELL_S)


def _seconds(text: str, default: float) -> float:
    try:
        value = float(text)
    except ValueError:
        return default
    return value if 0 <= value <= 60 else default


def note_whether_enough(env: Mapping[str, str], is_enough: bool) -> None:
    """Note whether the farewell was long enough to write the state down. Does not raise."""
    note = _note(env)
    if note is not None:
        with suppress(OSError):
            if not is_enough:
                note.write_text(f"{farewell_s(env):g}")
            elif note.exists():
                note.unlink()


def was_too_short(env: Mapping[str, str]) -> bool:
    """Tell whether a farewell as long as this job has was too short in an earlier run."""
    note = _note(env)
    if note is not None:
        with suppress(OSError):
            return _seconds(note.read_text()[:20], -1.0) >= farewell_s(env)
    return False


def _note(env: Mapping[str, str]) -> Optional[Path]:
    place = job_directory(env)
    return place / _NOTE if place else None
