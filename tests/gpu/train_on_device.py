"""A training on a device: watched, with a `notice()` after each step.

In alternate blocks of steps there is no notice, so that its cost shows. Arguments: work directory,
steps. TRAIN_DEVICE: cuda or cpu. TRAIN_BACKEND: nccl, "" for no name, or hccl, which is gloo that
ends the process as NCCL does. TRAIN_BLOCK: steps of a block. TRAIN_WORKERS: processes that draw its
batches. TRAIN_START_S: seconds to its first step.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

from slurm_hooks.elastic import Checkpoint, notice

DEVICE = os.environ["TRAIN_DEVICE"]
BACKEND = os.environ["TRAIN_BACKEND"]
BLOCK = int(os.environ.get("TRAIN_BLOCK", "0"))
WIDTH, BATCH = (1024, 256) if DEVICE == "cuda" else (64, 16)
WORKERS = int(os.environ.get("TRAIN_WORKERS", "2"))
START_S = float(os.environ.get("TRAIN_START_S", "10"))


class Batches(IterableDataset):  # type: ignore[type-arg]
    """The same batch again and again."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return repeat(torch.randn(BATCH, WIDTH))


def log(path: Path, **row: Any) -> None:
    with open(path, "a") as file:
        file.write(json.dumps(row) + "\n")


def join_group() -> None:
    if BACKEND == "hccl":
        dist.Backend.register_backend("hccl", dist.ProcessGroupGloo, devices=["cpu"])
    dist.init_process_group(BACKEND or None)
    if BACKEND == "hccl":
        sys.path.append(str(Path(__file__).parents[1] / "elastic"))
        from train_watched import abort_without_a_peer  # noqa: PLC0415  (torchrun runs a file)

        abort_without_a_peer()


def synchronize() -> None:
    if DEVICE != "cpu":
        torch.accelerator.synchronize()


def main() -> None:
    work, steps = Path(sys.argv[1]), int(sys.argv[2])
    torch.manual_seed(5)
    torch.set_num_threads(1)
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    join_group()
    rank, world = dist.get_rank(), dist.get_world_size()
    net = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(6))).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    checkpoint = Checkpoint(work / "checkpoint.pt")
    checkpoint.watch(net=net, optimizer=optimizer)
    step = checkpoint.resume()
    log(work / "begins.jsonl", rank=rank, world=world, step=step, t=time.time())
    model = DistributedDataParallel(net)
    is_pinned = DEVICE == "cuda"
    batches = DataLoader(Batches(), None, num_workers=WORKERS, pin_memory=is_pinned)
    time.sleep(START_S)
    asks, began, first = True, time.monotonic(), step
    for inputs in batches:
        optimizer.zero_grad()
        model(inputs.to(DEVICE, non_blocking=is_pinned)).square().mean().backward()
        optimizer.step()
        step += 1
        checkpoint.reached(step)
        if rank == 0:
            with open(work / "steps.log", "a") as file:
                file.write(f"{time.time():.3f} {step} {world}\n")
        if BLOCK and (step - first) % BLOCK == 0:
            synchronize()
            took_s = (time.monotonic() - began) / BLOCK
            log(work / f"blocks-{rank}.jsonl", asks=asks, step_s=took_s, world=world)
            asks, began = not asks, time.monotonic()
        if (asks or not BLOCK) and (coming := notice()):
            log(work / f"notices-{rank}.jsonl", why=coming.why, step=step)
            checkpoint.save(step, to_file=False)
            coming.ready()
        if step == steps:
            break
        if not BLOCK:
            time.sleep(0.02)


if __name__ == "__main__":
    main()
