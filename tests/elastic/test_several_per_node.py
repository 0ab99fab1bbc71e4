"""Two training processes on each node, whose state is watched.

The first process of a node writes for both. A node, or a process of it, may end at any time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
from torch.distributed.elastic.agent.server.api import WorkerSpec

from slurm_hooks.elastic.engines.torchrun.register import warm_workers
from waiting import wait_until

from .gang import Gang
from .test_just_in_time import (
    LONG,
    NNODES,
    SCRIPT,
    resumed_after,
    train_on,
)

pytestmark = [pytest.mark.torch]
TELL_SEATS = Path(__file__).with_name("tell_seats.py")


@pytest.fixture
def pairs(gang: Gang) -> Gang:
    """Two fragments of two processes that train. No process writes a file."""
    gang.script = SCRIPT
    gang.flags = ["--nproc-per-node=2"]
    for fragment in (1, 2):
        gang.start(fragment, NNODES, LONG)
    gang.wait_world(4)
    train_on(gang)
    return gang


def test_a_lost_process_costs_at_most_a_step(pairs: Gang) -> None:
    """The world keeps its size."""
    for local_rank in (0, 1):
        last = {b["rank"]: b for b in pairs.begins() if b["fragment"] == 1}
        t = time.time()
        os.kill(int(last[min(last) + local_rank]["pid"]), signal.SIGKILL)
        wait_until(lambda t=t: sum(b["t"] > t for b in pairs.begins()) == 4, explain=pairs.dump)
        assert resumed_after(pairs, t) > 0
        train_on(pairs)


@pytest.mark.nightly
def test_no_change_loses_or_repeats_a_sample(pairs: Gang) -> None:
    t = time.time()
    pairs.start(3, NNODES, LONG)
    pairs.wait_world(6, since=t)
    assert resumed_after(pairs, t) > 0
    t = pairs.notify(1)
    pairs.wait_world(4, since=t)
    assert resumed_after(pairs, t) > 0
    assert pairs.wait_exit(1) == [0]
    t = time.time()
    pairs.cut_off(2, signal.SIGTERM)  # as Slurm preempts
    pairs.wait_world(2, since=t)
    assert resumed_after(pairs, t) > 0
    t = time.time()
    pairs.start(4, NNODES, LONG)
    pairs.wait_world(4, since=t)
    train_on(pairs)
    t = time.time()
    pairs.cut_off(3, signal.SIGKILL)
    pairs.wait_world(2, since=t)
    assert resumed_after(pairs, t) > 0
    (pairs.work / "enough").touch()
    assert pairs.wait_exit(4) == [0]
    assert json.loads((pairs.work / "finished").read_text())["off"] == 0


@pytest.mark.parametrize(
    ("flags", "local_ranks"),
    [([], {"0", "1"}), (["--virtual-local-rank"], {"0"})],
)
def test_a_single_process_of_a_node_writes_its_memory(
    gang: Gang, flags: list[str], local_ranks: set[str]
) -> None:
    """With --virtual-local-rank each process has LOCAL_RANK 0 and sees only its own device."""
    if flags and not hasattr(WorkerSpec, "virtual_local_rank"):
        pytest.skip("this torch has no --virtual-local-rank")
    gang.script, gang.flags = TELL_SEATS, ["--nproc-per-node=2", *flags]
    for fragment in (1, 2):
        gang.start(fragment, "2:2", 0)
    assert gang.wait_exit(1, 2) == [0, 0]
    places = [json.loads((gang.work / f"told-{rank}").read_text()) for rank in range(4)]
    assert {one["local_rank"] for one in places} == local_ranks
    assert sorted((one["fragment"], one["seat"]) for one in places) == [
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]
    assert all(len(one["writers"]) == 1 for one in places)


def test_with_a_device_for_each_process_no_context_is_made_in_advance() -> None:
    """A warm worker would see the devices of all."""
    spec = SimpleNamespace(
        entrypoint=sys.executable, args=("-u", "t.py"), local_world_size=2, virtual_local_rank=True
    )
    assert warm_workers(spec) is None
