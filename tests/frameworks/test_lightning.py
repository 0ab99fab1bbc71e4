"""A Lightning script without a line of ours."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from elastic.gang import Gang
from waiting import wait_until

from .notes import LONG, NNODES, STEPS_OF_EPOCH, begin, resumed_after, samples_off

pytest.importorskip("lightning.pytorch", reason="not installed: make test-frameworks")

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1200)]


@pytest.fixture
def training(gang: Gang) -> Gang:
    return begin(gang, "train_lightning.py")


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


def test_a_search_that_draws_another_model_goes_on(gang: Gang) -> None:
    gang.script = Path(__file__).with_name("train_search.py")
    gang.start(1, "1:1", 0)
    wait_until(lambda: len(gang.steps()) > 10, 100, gang.dump)
    os.kill(min(gang.worker_pids(1)), signal.SIGTERM)
    assert gang.wait_exit(1, timeout=200) == [0], gang.dump()
    assert "that of another model" in gang.log(1)
