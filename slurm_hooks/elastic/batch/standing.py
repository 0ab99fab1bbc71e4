"""Which fragment this agent reports for, and the run of the element that it is about. A
reconciler that inferred where a fragment stands from exit codes and times would take a leave for a
finish.

Only values; own_element.py writes them.
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
