"""The element of a job array for which this agent reports, and its run. Only values, which
own_element.py writes.
"""

from __future__ import annotations

from collections.abc import Mapping

from slurm_hooks.elastic.batch.expected import own_job


def element(env: Mapping[str, str]) -> str:
    """Return Slurm's name of this element of a job array, empty outside of an array."""
    job = own_job(env)
    return job if "_" in job else ""


def is_reporter(env: Mapping[str, str]) -> bool:
    """Tell whether this agent reports for its fragment: it runs on the fragment's first node."""
    return env.get("SLURM_PROCID", "") in ("", "0")


def run_of(env: Mapping[str, str]) -> int:
    """Return the run of the element: how often Slurm has restarted it."""
    count = env.get("SLURM_RESTART_COUNT", "")
    return int(count) if count.isascii() and count.isdigit() and len(count) < 10 else 0
