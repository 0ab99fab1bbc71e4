"""FSDP2 and HSDP with torch.distributed.checkpoint: the last checkpoint counts, and with `notice()`
that is the step before a planned change."""

from __future__ import annotations

import signal
import time

import pytest

from elastic.gang import Gang

from .notes import LONG, NNODES, begin, noted, train_on

pytestmark = [pytest.mark.torch, pytest.mark.frameworks, pytest.mark.timeout(1200)]


@pytest.mark.parametrize(
    "per_node", [1, pytest.param(2, marks=pytest.mark.nightly)], ids=["fsdp", "hsdp"]
)
def test_another_number_of_nodes_loads_the_shards_of_the_last_checkpoint(
    gang: Gang, per_node: int
) -> None:
    gang.flags = [f"--nproc-per-node={per_node}"]
    begin(gang, "train_fsdp.py", world=2 * per_node)
    for change, nodes in (("grow", 3), ("kill", 2)):
        train_on(gang)
        t = time.time()
        if change == "grow":
            gang.start(3, NNODES, LONG)
        else:
            gang.cut_off(1, signal.SIGKILL)
        gang.wait_world(nodes * per_node, since=t, timeout=300)
        step, last = resumed_after(gang, t)
        assert step % 10 == 0
        assert last - step <= 11


def test_a_planned_change_that_the_script_hears_of_costs_no_step(gang: Gang) -> None:
    gang.extra["TRAIN_NOTICE"] = "1"
    begin(gang, "train_fsdp.py")
    t = time.time()
    gang.start(3, NNODES, LONG)
    gang.wait_world(3, since=t, timeout=300)
    grown, last = resumed_after(gang, t)
    assert grown == last
    t = gang.notify(1)
    gang.wait_world(2, since=t, timeout=300)
    shrunk, last = resumed_after(gang, t)
    assert grown < shrunk == last
    assert gang.wait_exit(1) == [0]


def resumed_after(gang: Gang, since: float) -> tuple[int, int]:
    """The step at which the round after that time began, and the last step before.

    Check that all processes have the weights that were noted after that step.
    """
    begins = [b for b in gang.begins() if b["t"] > since]
    step, begun = int(begins[0]["step"]), min(b["t"] for b in begins)
    before = [row for row in noted(gang) if row["t"] < begun]
    wanted = next(row["sum"] for row in before if row["step"] == step)
    assert [b["sum"] for b in begins] == [pytest.approx(wanted)] * len(begins)
    return step, int(before[-1]["step"])
