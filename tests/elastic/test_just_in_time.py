"""Watched objects through both ends: real torchrun, real signals, and what is resumed is to the bit
a state that the script itself noted at a step boundary."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from .gang import Gang

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).with_name("train_watched.py")
NNODES = "1:3"
LONG = 100_000


@pytest.fixture
def watched(gang: Gang) -> Gang:
    """Two fragments that train, none of which writes a file."""
    gang.script = SCRIPT
    for fragment in (1, 2):
        gang.start(fragment, NNODES, LONG)
    gang.wait_world(2, timeout=90)
    return gang


def noted(gang: Gang) -> dict[int, set[str]]:
    """Digests of each step's boundary, as the fragments noted them."""
    found: dict[int, set[str]] = {}
    for path in gang.work.glob("digests-*"):
        for line in path.read_text().splitlines():
            step, digest = line.split()
            found.setdefault(int(step), set()).add(digest)
    return found


def reached(gang: Gang, before: float) -> int:
    """The last step that anybody reached before that time."""
    rows = [
        line.split()
        for path in gang.work.glob("reached-*")
        for line in path.read_text().splitlines()
    ]
    return max(int(step) for t, step, _ in rows if float(t) < before)


def resumed_after(gang: Gang, since: float) -> int:
    """The step at which the round after that time began; checks that it is one state, to the bit
    that of a boundary, in all processes."""
    begins = [b for b in gang.begins() if b["t"] > since]
    step = int(begins[0]["step"])
    digests = {b["digest"] for b in begins if b["world"] == begins[0]["world"]}
    assert len(digests) == 1, begins
    assert digests <= noted(gang)[step]
    begun = min(b["t"] for b in begins)
    assert reached(gang, begun) - step <= 1, (reached(gang, begun), begins)
    return step


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("victim", [1, 2])
def test_a_lost_node_costs_one_step_at_most(
    watched: Gang, sig: signal.Signals, victim: int
) -> None:
    time.sleep(0.5)
    lost_at = time.time()
    watched.cut_off(victim, sig)
    watched.wait_exit(victim, timeout=3)
    gone_s = time.time() - lost_at
    watched.wait_world(1, since=lost_at)
    assert resumed_after(watched, lost_at) > 5
    assert gone_s < 1.5


def test_growing_and_shrinking_resume_at_the_boundary(watched: Gang) -> None:
    t = time.time()
    watched.start(3, NNODES, LONG)
    watched.wait_world(3, since=t)
    assert resumed_after(watched, t) > 0
    t = watched.notify(1)
    watched.wait_world(2, since=t)
    assert resumed_after(watched, t) > 0
    assert watched.wait_exit(1) == [0]


def test_no_sample_is_lost_or_learnt_twice(gang: Gang) -> None:
    gang.script = SCRIPT
    for fragment in (1, 2):
        gang.start(fragment, NNODES, 250)
    gang.wait_world(2, timeout=90)
    time.sleep(0.5)
    t = time.time()
    gang.cut_off(1, signal.SIGTERM)
    gang.wait_world(1, since=t)
    t = time.time()
    gang.start(3, NNODES, 250)
    gang.wait_world(2, since=t)
    gang.cut_off(2, signal.SIGKILL)
    assert gang.wait_exit(3, timeout=60) == [0]
    assert json.loads((gang.work / "finished").read_text())["off"] == 0
