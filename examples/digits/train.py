"""Learn to read handwritten digits, as a plain torchrun script.

It does two things that every interruptible script does: it saves a checkpoint from time to time,
and resumes from it. The global batch is the same for any number of processes. So a run that grew
and shrank sees the same samples as a run that did not.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

GLOBAL_BATCH = 64
SEED = 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=600, help="steps to train in all")
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--work", type=Path, default=Path("."), help="directory of the results")
    parser.add_argument(
        "--pace",
        type=float,
        default=0.0,
        metavar="S",
        help="pretend that a step is S seconds of work, shared by all processes",
    )
    return parser.parse_args()


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Train and held-out images (sample, 64) and labels (sample), the same everywhere."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        images / 16.0, labels, test_size=0.2, random_state=SEED, stratify=labels
    )
    train_x, test_x, train_y, test_y = parts
    floats = [torch.tensor(x, dtype=torch.float32) for x in (train_x, test_x)]
    return floats[0], floats[1], torch.tensor(train_y), torch.tensor(test_y)


def batch_of(step: int, samples: int) -> torch.Tensor:
    """Indices of the global batch of this step, which depend on the step alone."""
    per_epoch = samples // GLOBAL_BATCH
    shuffle = torch.Generator().manual_seed(SEED + step // per_epoch)
    start = step % per_epoch * GLOBAL_BATCH
    return torch.randperm(samples, generator=shuffle)[start : start + GLOBAL_BATCH]


def save(path: Path, content: dict[str, Any]) -> None:
    """Save as a whole or not at all: a process that is killed here leaves the last checkpoint
    whole."""
    draft = path.with_suffix(".new")
    with open(draft, "wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def resume(path: Path) -> dict[str, Any]:
    """Load in all processes the checkpoint that rank 0 finds."""
    loaded: list[Any] = [None]
    if dist.get_rank() == 0 and path.exists():
        loaded = [torch.load(path, weights_only=True)]
    dist.broadcast_object_list(loaded)
    return loaded[0] or {}


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train_x, test_x, train_y, test_y = data()

    hidden = 256
    layers = torch.nn.Sequential(
        torch.nn.Linear(64, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10)
    )
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.2, momentum=0.9)
    checkpoint = options.work / "checkpoint.pt"
    saved = resume(checkpoint)
    if saved:
        layers.load_state_dict(saved["layers"])
        optimizer.load_state_dict(saved["optimizer"])
    first = saved.get("step", 0)
    starts = [*saved.get("starts", []), [first, world]]
    model = DistributedDataParallel(layers)
    if rank == 0:
        print(f"step {first} of {options.steps}: {world} processes", flush=True)

    for step in range(first, options.steps):
        began = time.monotonic()
        mine = batch_of(step, len(train_x))[rank::world]
        # DDP averages over processes. This scale makes it the mean over the global batch.
        loss = cross_entropy(model(train_x[mine]), train_y[mine], reduction="sum")
        optimizer.zero_grad()
        (loss * world / GLOBAL_BATCH).backward()
        optimizer.step()
        time.sleep(max(0.0, options.pace / world - (time.monotonic() - began)))
        done = step + 1
        if rank == 0 and (done % options.every == 0 or done == options.steps):
            content = {"step": done, "starts": starts, "layers": layers.state_dict()}
            save(checkpoint, {**content, "optimizer": optimizer.state_dict()})
        if rank == 0 and done % (5 * options.every) == 0:
            print(f"step {done} of {options.steps}: loss {loss.item() / len(mine):.3f}", flush=True)

    if rank == 0:
        with torch.no_grad():
            accuracy = (layers(test_x).argmax(1) == test_y).float().mean().item()
        result = {
            "steps": options.steps,
            "accuracy": round(accuracy, 4),
            "worlds": sorted({size for _, size in starts}),
            "starts": starts,
            "restarts": len(starts) - 1,
        }
        (options.work / "result.json").write_text(json.dumps(result) + "\n")
        print(f"accuracy {accuracy:.3f} on held-out digits", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
