"""Train as train.py does, with optional lines (marked `# +`) that make a change of size cheaper.

It resumes at the exact sample, from the last step that a survivor has reached. This also holds when
a node is lost without notice. The script also reports its progress.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from train import GLOBAL_BATCH, SEED, arguments, data

from slurm_hooks.elastic import Checkpoint, ElasticBatches, report


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train_x, test_x, train_y, test_y = data()
    layers = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    )
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.2, momentum=0.9)

    checkpoint = Checkpoint(options.work / "checkpoint_more.pt")  # +
    checkpoint.watch(layers=layers, optimizer=optimizer)  # +
    first = checkpoint.resume()  # +
    model = DistributedDataParallel(layers)
    if rank == 0:
        print(f"step {first} of {options.steps}: {world} processes", flush=True)

    batches = ElasticBatches(len(train_x), GLOBAL_BATCH, options.steps, start=first)  # +
    for done, mine in enumerate(batches, first + 1):
        began = time.monotonic()
        loss = cross_entropy(model(train_x[mine]), train_y[mine], reduction="sum")
        optimizer.zero_grad()
        (loss * world / GLOBAL_BATCH).backward()
        optimizer.step()
        checkpoint.reached(done)  # +
        time.sleep(max(0.0, options.pace / world - (time.monotonic() - began)))
        report(done * GLOBAL_BATCH, loss.item() / len(mine))  # +
        if done % options.every == 0 or done == options.steps:
            checkpoint.save(done)  # +

    if rank == 0:
        with torch.no_grad():
            accuracy = (layers(test_x).argmax(1) == test_y).float().mean().item()
        print(f"accuracy {accuracy:.3f} on held-out digits", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
