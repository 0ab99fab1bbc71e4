"""A script with Hugging Face's Trainer, without a line of ours."""

from __future__ import annotations

import signal
import time

import pytest

from elastic.gang import Gang
from waiting import wait_until

from .notes import LONG, NNODES, STEPS_OF_EPOCH, begin, resumed_after, samples_off

pytest.importorskip("transformers", reason="not installed: make test-frameworks")

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1200)]


@pytest.fixture
def training(gang: Gang) -> Gang:
    return begin(gang, "train_trainer.py")


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


def test_a_torn_directory_is_skipped_when_all_nodes_are_gone(gang: Gang) -> None:
    gang.extra = {"TRAIN_SAVE": "5"}
    begin(gang, "train_trainer.py")
    wait_until((gang.work / "out/checkpoint-10/trainer_state.json").exists, 60, gang.dump)
    for fragment in (1, 2):
        gang.cut_off(fragment, signal.SIGKILL)
    gang.wait_exit(1, 2)
    newest = max((gang.work / "out").iterdir(), key=lambda path: int(path.name[11:]))
    model = newest / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1])
    t = time.time()
    gang.start(1, NNODES, LONG, restarts=1)
    gang.start(2, NNODES, LONG, restarts=1)
    gang.wait_world(2, since=t, timeout=300)
    assert {b["step"] for b in gang.begins() if b["t"] > t} == {int(newest.name[11:]) - 5}
