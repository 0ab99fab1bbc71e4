"""Tests that need a GPU and NCCL.

A training grows, gets a notice of it, and survives a lost process. Others measure the cost of
copies and notices, and the speed of warm workers with a CUDA context.
"""

from __future__ import annotations

import signal
import time

import pytest

from slurm_hooks.elastic.script.memory_room import room
from waiting import wait_until

from .bench import Bench, Device, copies_of
from .conftest import Measured

pytestmark = [pytest.mark.gpu, pytest.mark.torch]
SIZES = 4


def grown(bench: Bench) -> dict[str, float | int]:
    """Grow from 1 fragment to 2. Return the pause, and the number of repeated steps."""
    bench.begin(1)
    bench.wait_world(1)
    time.sleep(3.0)  # its warm worker for the next round is ready
    began = time.time()
    bench.begin(2)
    bench.wait_world(2)
    steps = bench.steps()
    first_at, first, _ = next(row for row in steps if row[2] == 2)
    last_at, last, _ = [row for row in steps if row[2] == 1][-1]
    pause_s, all_s = first_at - last_at, first_at - began
    return {"pause_s": round(pause_s, 3), "all_s": round(all_s, 3), "twice": last - first + 1}


@pytest.mark.parametrize("is_named", [True, False])
def test_a_training_grows_at_a_notice(bench: Bench, measured: Measured, is_named: bool) -> None:
    """Without a named backend torch takes tensors of the GPU alone."""
    if not is_named:
        bench.extra["TRAIN_BACKEND"] = ""
    growth = grown(bench)
    (why,) = {row["why"] for row in bench.figures("notices")}
    measured("growth", named=is_named, why=why, **growth)
    assert why == "grow"
    assert growth["twice"] == 0


@pytest.mark.parametrize("warm", ["0", "nocuda", "cuda"])
def test_a_warm_worker_with_a_context_is_tried(bench: Bench, measured: Measured, warm: str) -> None:
    bench.extra["MALLEABLE_WARM"] = warm
    measured("warm", warm=warm, **grown(bench))


def test_a_killed_process_has_the_reported_cost(bench: Bench, measured: Measured) -> None:
    bench.train_as_users()
    bench.pretend_slurm()
    for fragment in (1, 2):
        bench.begin(fragment)
    bench.wait_world(2)
    wait_until(bench.reported_loss, explain=bench.dump)
    loss, lost_at = bench.reported_loss(), time.time()
    assert loss is not None
    bench.cut_off(2, signal.SIGKILL)
    bench.wait_world(1, since=lost_at)
    (begin,) = (b for b in bench.begins() if b["t"] > lost_at)
    kept_at = max(t for t, step, _ in bench.steps() if step == begin["step"] and t < lost_at)
    log = bench.log(1)
    measured(
        "killed",
        told_s=loss.seconds,
        lost_s=round(lost_at - kept_at, 3),
        aborted="SIGABRT" in log or "Aborted" in log,
        back_after_s=round(begin["t"] - lost_at, 3),
    )
    assert lost_at - kept_at <= loss.seconds, bench.dump()


def test_unequal_fragments_train_together(bench: Bench, measured: Measured) -> None:
    """1 GPU, then 1 + 3, then the 3 alone."""
    if bench.device.count < 4:
        pytest.skip("fragments of 1 and 3 GPUs need 4 GPUs")
    bench.extra["SLURM_SPANK_MALLEABLE"] = "1-4,unit=gpu"
    bench.begin_part(1, range(1))
    bench.wait_world(1)
    time.sleep(3.0)  # its warm worker for the next round is ready
    began = time.time()
    bench.begin_part(2, range(1, 4))
    bench.wait_world(4)
    grown = [b for b in bench.begins() if b["world"] == 4]
    assert sorted(b["rank"] for b in grown) == [0, 1, 2, 3]
    assert len({b["step"] for b in grown}) == 1
    lost_at = time.time()
    bench.cut_off(1, signal.SIGKILL)
    bench.wait_world(3, since=lost_at)
    left = [b for b in bench.begins() if b["world"] == 3]
    assert min(b["step"] for b in left) >= grown[0]["step"]
    assert [r["size"] for r in bench.rounds()][:2] == [1, 4]
    back_s = min(b["t"] for b in left) - lost_at
    measured("unequal", all_s=round(grown[0]["t"] - began, 3), back_after_s=round(back_s, 3))


def test_the_cost_of_a_notice(bench: Bench, measured: Measured) -> None:
    """The quickest block of steps with and without counts, because other work only makes
    blocks slower.
    """
    bench.extra["TRAIN_BLOCK"] = "100"
    for fragment in (1, 2):
        bench.begin(fragment)

    def blocks() -> list[dict[str, float]]:
        return [row for row in bench.figures("blocks") if row["world"] == 2]

    wait_until(lambda: len(blocks()) >= 40, explain=bench.dump)
    with_s, without_s = (
        min(row["step_s"] for row in blocks()[4:] if row["asks"] is asks) for asks in (True, False)
    )
    percent = 100 * (with_s - without_s) / without_s
    times = {"with_ms": round(1e3 * with_s, 3), "without_ms": round(1e3 * without_s, 3)}
    measured("notice", **times, percent=round(percent, 2))


@pytest.mark.parametrize("size", range(SIZES))
def test_copies_of_a_state(device: Device, measured: Measured, size: int) -> None:
    if size >= len(device.sizes_mib):
        pytest.skip("the stand-in has fewer sizes")
    mib = device.sizes_mib[size]
    if room() < 3 * mib << 20:  # two copies, and as much again stays free
        pytest.skip(f"two copies of {mib} MiB need {3 * mib} MiB of free memory")
    row = copies_of(device, mib)
    measured("copies", **row)
    assert row["first_s"] > 0
