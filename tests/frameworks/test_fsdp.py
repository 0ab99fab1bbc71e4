"""FSDP2 with torch.distributed.checkpoint, without a line of ours: the last checkpoint counts."""

from __future__ import annotations

import signal
import time

import pytest

from elastic.gang import Gang

from .notes import LONG, NNODES, begin, noted

pytestmark = [pytest.mark.torch, pytest.mark.frameworks, pytest.mark.timeout(1200)]


def test_another_number_of_nodes_loads_the_shards_of_the_last_checkpoint(gang: Gang) -> None:
    begin(gang, "train_fsdp.py")
    time.sleep(2)
    for change, world in (("grow", 3), ("kill", 2)):
        t = time.time()
        if change == "grow":
            gang.start(3, NNODES, LONG)
        else:
            gang.cut_off(1, signal.SIGKILL)
        gang.wait_world(world, since=t, timeout=300)
        begins = [b for b in gang.begins() if b["t"] > t]
        step, begun = int(begins[0]["step"]), min(b["t"] for b in begins)
        before = [row for row in noted(gang) if row["t"] < begun]
        assert step % 10 == 0
        assert before[-1]["step"] - step <= 11
        wanted = next(row["sum"] for row in before if row["step"] == step)
        assert [b["sum"] for b in begins] == [pytest.approx(wanted)] * len(begins)
