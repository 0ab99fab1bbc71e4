"""A script with Hugging Face's Trainer, without a line of ours."""

from __future__ import annotations

import signal
import time

import pytest

from elastic.gang import Gang

from .notes import LONG, NNODES, begin, resumed_after

pytest.importorskip("transformers", reason="not installed: make test-frameworks")

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]


@pytest.fixture
def training(gang: Gang) -> Gang:
    return begin(gang, "train_trainer.py")


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_a_lost_node_costs_one_step_at_most(training: Gang, sig: signal.Signals) -> None:
    time.sleep(0.5)
    lost_at = time.time()
    training.cut_off(1, sig)
    training.wait_world(1, since=lost_at, timeout=120)
    assert resumed_after(training, lost_at) > 5


def test_growing_and_shrinking_resume_at_the_boundary(training: Gang) -> None:
    t = time.time()
    training.start(3, NNODES, LONG)
    training.wait_world(3, since=t, timeout=120)
    assert resumed_after(training, t) > 0
    t = training.notify(1)
    training.wait_world(2, since=t, timeout=120)
    assert resumed_after(training, t) > 0
    assert training.wait_exit(1) == [0]
