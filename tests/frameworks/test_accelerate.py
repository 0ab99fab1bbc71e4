"""A loop of the script's own with accelerate, and the three lines of ours."""

from __future__ import annotations

import signal
import time

import pytest

from elastic.gang import Gang
from waiting import wait_until

from .notes import LONG, NNODES, STEPS_OF_EPOCH, begin, resumed_after, samples_off

pytest.importorskip("accelerate", reason="not installed: make test-frameworks")

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1200)]


@pytest.fixture
def training(gang: Gang) -> Gang:
    return begin(gang, "train_accelerate.py")


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_a_lost_node_costs_one_step_at_most(training: Gang, sig: signal.Signals) -> None:
    wait_until(lambda: training.steps()[-1][1] > 10, 60, training.dump)
    lost_at = time.time()
    training.cut_off(1, sig)
    training.wait_world(1, since=lost_at, timeout=300)
    assert resumed_after(training, lost_at) > 5


def test_no_change_loses_or_repeats_a_sample(training: Gang) -> None:
    t = time.time()
    training.start(3, NNODES, LONG)
    training.wait_world(3, since=t, timeout=300)
    assert resumed_after(training, t) > 0
    t = training.notify(1)
    training.wait_world(2, since=t, timeout=300)
    assert resumed_after(training, t) > 0
    assert training.wait_exit(1) == [0]
    t, step = time.time(), 3 * STEPS_OF_EPOCH
    training.cut_off(2, signal.SIGKILL)
    training.wait_world(1, since=t, timeout=300)
    wait_until(lambda: training.steps()[-1][1] > step, 300, training.dump)
    assert samples_off(training) == 0
