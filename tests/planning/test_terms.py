"""The terms of a lane: how long a job may wait for a node there, and what they do to the plan."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slurm_hooks.model import Terms

KILL_WAIT_S = 30
LEASE_S = 600


@pytest.mark.parametrize(
    ("grace_s", "exempt_s", "wait_s"),
    [
        (0, 0, 30),  # KillWait is all
        (20, 0, 20 + 30 + 30),  # Slurm looks each 30 s whether a grace is over
        (0, 60, 60 + 30),
        (300, 60, 300 + 60 + 30 + 30),
        (7_200, 0, 600 + 30 + 30),  # the lease is over first
        (0, 7_200, 600 + 30 + 30),
        (300, 400, 600 + 30 + 30),
    ],
)
def test_a_job_waits_for_exempt_time_grace_and_kill_wait(
    grace_s: int, exempt_s: int, wait_s: int
) -> None:
    terms = Terms("lane", timedelta(seconds=grace_s), timedelta(seconds=exempt_s))
    found = terms.longest_wait(timedelta(seconds=KILL_WAIT_S), timedelta(seconds=LEASE_S))
    assert found == timedelta(seconds=wait_s)
