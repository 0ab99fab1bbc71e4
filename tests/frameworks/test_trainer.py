"""A script with Hugging Face's Trainer, without a line of ours."""

from __future__ import annotations

import os
import signal
import time

import pytest

from elastic.gang import Gang
from waiting import wait_until

from .notes import HERE, LONG, NNODES, begin

pytest.importorskip("transformers", reason="not installed: make test-frameworks")

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1200)]


def test_a_torn_directory_is_skipped_when_all_nodes_are_gone(gang: Gang) -> None:
    gang.extra = {"TRAIN_SAVE": "5"}
    begin(gang, "train_trainer.py")
    wait_until((gang.work / "out/checkpoint-10/trainer_state.json").exists, explain=gang.dump)
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


@pytest.mark.nightly
def test_a_trial_of_a_search_begins_at_its_own_beginning(gang: Gang) -> None:
    pytest.importorskip("optuna", reason="not installed: make test-frameworks")
    gang.script = HERE / "train_trials.py"
    gang.start(1, "1:1", LONG)
    wait_until(lambda: len(gang.steps()) > 10, 300, gang.dump)
    os.kill(min(gang.worker_pids(1)), signal.SIGTERM)  # the next draw gives another trial
    wait_until(lambda: len(gang.begins()) > 1, 300, gang.dump)
    assert [begin["step"] for begin in gang.begins()] == [0, 0]
