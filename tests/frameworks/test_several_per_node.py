"""Two training processes on each node, with frameworks: the cost of Slurm's preemption of a
node.
"""

from __future__ import annotations

import signal
import time

import pytest

from elastic.gang import Gang

from .notes import LONG, NNODES, STEPS_OF_EPOCH, begin, resumed_after, samples_off, train_on
from .test_changes import SCRIPTS

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1200)]


@pytest.mark.parametrize(
    "library",
    [
        "lightning.pytorch",
        pytest.param("transformers", marks=pytest.mark.nightly),
        pytest.param("accelerate", marks=pytest.mark.nightly),
    ],
)
def test_no_change_loses_or_repeats_a_sample(library: str, gang: Gang) -> None:
    pytest.importorskip(library, reason="not installed: make test-frameworks")
    gang.flags = ["--nproc-per-node=2"]
    begin(gang, SCRIPTS[library], world=4)
    train_on(gang)
    t = time.time()
    gang.cut_off(1, signal.SIGTERM)  # as Slurm preempts
    gang.wait_world(2, since=t, timeout=300)
    assert resumed_after(gang, t) > 5
    t = time.time()
    gang.start(3, NNODES, LONG)
    gang.wait_world(4, since=t, timeout=300)
    assert resumed_after(gang, t) > 5
    t = time.time()
    gang.cut_off(2, signal.SIGKILL)
    gang.wait_world(2, since=t, timeout=300)
    assert resumed_after(gang, t) > 5
    train_on(gang, STEPS_OF_EPOCH)
    assert samples_off(gang) == 0
