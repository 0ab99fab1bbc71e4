"""The promise of a lane, in words."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slurm_hooks.model import Terms
from slurm_hooks.report.promise import promise_text, time_text

S = timedelta(seconds=1)
KILL_WAIT, LEASE = 30 * S, 3600 * S


@pytest.mark.parametrize(
    ("grace_s", "exempt_s", "lease_s", "wanted"),
    [
        (0, 0, 3600, "up to 30 s for a node with a fragment: KillWait 30 s"),
        (
            600,
            0,
            3600,
            "up to 11 min for a node with a fragment: grace 10 min, 30 s until Slurm's check, ",
        ),
        (
            0,
            7200,
            86400,
            "up to 2 h 30 s for a node with a fragment: PreemptExemptTime 2 h, KillWait 30 s",
        ),
        (
            300,
            600,
            3600,
            "up to 16 min for a node with a fragment: PreemptExemptTime 10 min, grace 5 min,",
        ),
        (
            0,
            600,
            600,
            "up to 10 min 30 s for a node with a fragment: PreemptExemptTime 10 min, KillWait",
        ),
        (
            0,
            900,
            600,
            "up to 11 min for a node with a fragment: the longest lease 10 min, 30 s until",
        ),
        (
            300,
            600,
            600,
            "up to 11 min for a node with a fragment: the longest lease 10 min, 30 s until",
        ),
    ],
)
def test_the_parts_add_up(grace_s: int, exempt_s: int, lease_s: int, wanted: str) -> None:
    text = promise_text(Terms("gpu", grace_s * S, exempt_s * S), KILL_WAIT, lease_s * S)
    assert text.startswith(f"partition gpu: a job may wait {wanted}")
    assert text.endswith(", KillWait 30 s") or wanted.endswith(": KillWait 30 s")


def test_promises_that_are_at_once() -> None:
    assert Terms("gpu").is_at_once
    assert not Terms("gpu", grace=S).is_at_once
    assert not Terms("gpu", exempt=S).is_at_once


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (90, "1 min 30 s"), (3600, "1 h"), (7262, "2 h 1 min 2 s")]
)
def test_times(seconds: int, text: str) -> None:
    assert time_text(seconds * S) == text
