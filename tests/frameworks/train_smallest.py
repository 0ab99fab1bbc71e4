"""The smallest training with files of its own: a layer, AdamW, a checkpoint each ten steps.

The programs' pauses are shown beside this script's. Arguments: output directory, steps.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

PATH, STEPS = os.path.join(sys.argv[1], "checkpoint.pt"), int(sys.argv[2])
torch.set_num_threads(1)
torch.manual_seed(5)
dist.init_process_group("gloo")
model = torch.nn.Linear(8, 1)
optimizer, first = torch.optim.AdamW(model.parameters(), lr=0.01), 0
if os.path.exists(PATH):
    state = torch.load(PATH)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"]
parallel = DistributedDataParallel(model)
for step in range(first + 1, STEPS + 1):
    optimizer.zero_grad()
    parallel(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    if step % 10 == 0 and dist.get_rank() == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, PATH + ".new")
        os.replace(PATH + ".new", PATH)
dist.destroy_process_group()
