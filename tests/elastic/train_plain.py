"""A training as in torch's own examples, without our library.

It has an optimizer and a file written now and then by rank 0. Arguments: work directory, steps,
steps between checkpoints.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

work, target, every = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Linear(100, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
checkpoint, first = work / "checkpoint.pt", 0
if checkpoint.exists():
    state = torch.load(checkpoint, weights_only=True)
    first = state["step"]
    model.load_state_dict(state["model"])
parallel = DistributedDataParallel(model)


def note() -> None:
    """Note for the test that a checkpoint exists, or that the first step begins."""
    with open(work / "saved", "a") as file:
        file.write(f"{time.monotonic()}\n")


if dist.get_rank() == 0:
    note()
for step in range(first, target):
    time.sleep(0.05)
    optimizer.zero_grad()
    parallel(torch.ones(100)).sum().backward()
    optimizer.step()
    if dist.get_rank() == 0 and (step + 1) % every == 0:
        torch.save({"step": step + 1, "model": model.state_dict()}, work / "new.pt")
        os.replace(work / "new.pt", checkpoint)
        note()
dist.destroy_process_group()
