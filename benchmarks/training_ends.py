"""How often a training of two processes hangs at its very end, where torch's reducer is the last
owner of the process group, and where Python is (script/process_groups.py): the two in turns.

make bench-training-ends BENCH_ARGS="--seconds=150 --at-once=6"; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from pathlib import Path

import torch
import torch._dynamo  # as the first optimizer does: without it a module leaks its group
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from slurm_hooks.elastic.script.process_groups import outlive_reducer

PATIENCE_S = 30.0  # an end takes a hundredth of a second


def train(store: Path, rank: int, is_mended: bool) -> None:
    """As in torch's tutorials: the module is a local variable, and lives longest."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16))
    model = DistributedDataParallel(net)
    if is_mended:
        outlive_reducer(model)
    for _ in range(3):
        model(torch.randn(4, 8)).square().mean().backward()
        dist.all_reduce(torch.tensor([1.0]))
    dist.barrier()
    dist.destroy_process_group()


def has_hung(store: Path, is_mended: bool) -> bool:
    """Whether a process had to be killed. Raises RuntimeError if one has failed."""
    pids = {fork(store, rank, is_mended) for rank in range(2)}
    deadline = time.monotonic() + PATIENCE_S
    failed = 0
    while pids and not failed and time.monotonic() < deadline:
        for pid, status in [os.waitpid(pid, os.WNOHANG) for pid in pids]:
            pids.discard(pid)
            failed = failed or status
        time.sleep(0.005)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if failed:
        raise RuntimeError(f"a training has failed: {failed}")
    return bool(pids)


def fork(store: Path, rank: int, is_mended: bool) -> int:
    """The pid of a process that trains; torch is imported already."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            train(store, rank, is_mended)
            status = 0
        finally:
            os._exit(status)
    return pid


def count(seconds: float) -> list[list[int]]:
    """Trainings and those that hung: as torch is, then mended."""
    found = [[0, 0], [0, 0]]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for kind, row in enumerate(found):
            with tempfile.TemporaryDirectory() as place:
                row[0] += 1
                row[1] += has_hung(Path(place, "store"), bool(kind))
    return found


def main() -> None:
    """As often as fits into the time, in several processes at once, so that threads are late."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--at-once", type=int, default=6)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        pids = []
        for number in range(asked.at_once):
            pid = os.fork()
            if pid == 0:
                try:
                    Path(place, str(number)).write_text(json.dumps(count(asked.seconds)))
                finally:
                    os._exit(0)  # the place is the parent's to tidy away
            pids.append(pid)
        for pid in pids:
            os.waitpid(pid, 0)
        if len(list(Path(place).iterdir())) < asked.at_once:
            raise SystemExit("a training has failed: nothing is counted")
        all_ = [json.loads(path.read_text()) for path in Path(place).iterdir()]
    rows = [[sum(part[kind][n] for part in all_) for n in range(2)] for kind in range(2)]
    for what, (trainings, hung) in zip(("as torch is", "mended"), rows):
        print(f"{what:12} {trainings:6} trainings, {hung} hung")
    print(json.dumps({"torch": rows[0], "mended": rows[1]}))


if __name__ == "__main__":
    main()
