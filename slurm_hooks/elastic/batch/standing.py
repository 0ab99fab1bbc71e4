"""Which element of a job array this agent reports for, in which of its runs. Only values;
own_element.py writes them.
"""

from __future__ import annotations

from collections.abc import Mapping

from slurm_hooks.elastic.batch.expected import own_job


def element(env: Mapping[str, str]) -> str:
    """How Slurm names this element of a job array, empty outside of one."""
    job = own_job(env)
    return job if "_" in job else ""


def is_reporter(env: Mapping[str, str]) -> bool:
    """Whether this is the one agent that reports for its fragment: that of its first node."""
    return env.get("SLURM_PROCID", "") in ("", "0")


def run_of(env: Mapping[str, str]) -> int:
    """The run of the element: how often Slurm has restarted it."""
    count = env.get("SLURM_RESTART_COUNT", "")
    return int(count) if count.isascii() and count.isdigit() and len(count) < 10 else 0
