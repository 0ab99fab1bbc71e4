"""Properties of each framework. Only the script of accelerate has lines of our library."""

from __future__ import annotations

import signal
import time

import pytest

from elastic.gang import Gang
from waiting import wait_until

from .notes import (
    HERE,
    LONG,
    NNODES,
    STEPS_OF_EPOCH,
    begin,
    noted,
    resumed_after,
    samples_off,
)

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1200)]
SCRIPTS = {
    "lightning.pytorch": "train_lightning.py",
    "transformers": "train_trainer.py",
    "accelerate": "train_accelerate.py",
}


@pytest.fixture(params=SCRIPTS)
def training(request: pytest.FixtureRequest, gang: Gang) -> Gang:
    pytest.importorskip(request.param, reason="not installed: make test-frameworks")
    start_s = 10 if request.param == "lightning.pytorch" else 0  # as many as a user's training
    return begin(gang, SCRIPTS[request.param], start_s=start_s)


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
    assert resumed_after(training, t) > 0
    wait_until(lambda: training.steps()[-1][1] > step, 300, training.dump)
    assert samples_off(training) == 0


@pytest.mark.parametrize("library", ["lightning.pytorch", "transformers"])
def test_after_the_last_step_no_step_is_made_again(library: str, gang: Gang) -> None:
    """In an evaluation after the training, a newcomer stops nobody, and a loss repeats the
    evaluation.
    """
    pytest.importorskip(library, reason="not installed: make test-frameworks")
    gang.script, gang.extra["TRAIN_TAIL"] = HERE / SCRIPTS[library], "1"
    for fragment in (1, 2):
        gang.start(fragment, NNODES, 30)
    tails = gang.work / "tails"
    wait_until(lambda: tails.exists() and len(tails.read_text().split()) == 2, 300, gang.dump)
    gang.start(3, NNODES, 30)
    wait_until(lambda: '",3,' in gang.state(), 300, gang.dump)
    time.sleep(3.0)  # ten times as long as a newcomer settles
    assert len(tails.read_text().split()) == 2
    gang.cut_off(1, signal.SIGKILL)
    wait_until(lambda: len(tails.read_text().split()) == 4, 300, gang.dump)
    (gang.work / "enough").touch()
    assert gang.wait_exit(2, 3) == [0, 0]
    assert [row["step"] for row in noted(gang)] == sorted([*range(1, 31), *range(1, 31)])
    assert (gang.work / "finished").read_text() == "30"
