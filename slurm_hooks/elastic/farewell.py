"""How long a fragment that Slurm ends may take to write down what it has: the site's
`lease.farewell_s`. The job that wants its node waits so long at most.

Where that was too short, the next life of the job is to know: a file in its directory says so.
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
    """Seconds from SIGTERM on, by MALLEABLE_FAREWELL_S; what is no number of seconds up to a
    minute is as if it were missing."""
    return _seconds(env.get("MALLEABLE_FAREWELL_S", ""), FAREWELL_S)


def _seconds(text: str, default: float) -> float:
    try:
        value = float(text)
    except ValueError:
        return default
    return value if 0 <= value <= 60 else default


def note_whether_enough(env: Mapping[str, str], is_enough: bool) -> None:
    """Whether the farewell was long enough to write the state down. Does not raise."""
    note = _note(env)
    if note is not None:
        with suppress(OSError):
            if not is_enough:
                note.write_text(f"{farewell_s(env):g}")
            elif note.exists():
                note.unlink()


def was_too_short(env: Mapping[str, str]) -> bool:
    """Whether a farewell as long as this job has was too short before."""
    note = _note(env)
    if note is not None:
        with suppress(OSError):
            return _seconds(note.read_text()[:20], -1.0) >= farewell_s(env)
    return False


def _note(env: Mapping[str, str]) -> Optional[Path]:
    place = job_directory(env)
    return place / _NOTE if place else None
