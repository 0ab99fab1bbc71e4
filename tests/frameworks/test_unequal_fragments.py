"""Fragments of 1 and 3 GPUs, with frameworks: all processes are counted, and no sample is lost."""

from __future__ import annotations

import time

import pytest

from elastic.gang import Gang

from .notes import HERE, LONG, NNODES, resumed_after, samples_off, train_on
from .test_changes import SCRIPTS

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1200)]


def start(gang: Gang, fragment: int, gpus: int) -> None:
    gang.flags = [f"--nproc-per-node={gpus}"]
    gang.extra |= {"SLURM_GPUS_ON_NODE": str(gpus)}
    gang.start(fragment, NNODES, LONG)


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
    gang.script = HERE / SCRIPTS[library]
    gang.extra |= {"SLURM_SPANK_MALLEABLE": "3-4,unit=gpu"}
    start(gang, 1, 1)
    start(gang, 2, 3)
    gang.wait_world(4, timeout=300)
    train_on(gang)
    t = time.time()
    gang.notify(1)
    gang.wait_world(3, since=t, timeout=300)
    assert resumed_after(gang, t) > 5
    t = time.time()
    start(gang, 3, 1)
    gang.wait_world(4, since=t, timeout=300)
    assert resumed_after(gang, t) > 5
    train_on(gang)
    assert samples_off(gang) == 0
