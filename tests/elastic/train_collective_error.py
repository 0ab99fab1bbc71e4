"""A training in which one process fails in a collective, so that all others lose a peer."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([1.0])
dist.all_reduce(total)
if os.environ["MALLEABLE_FRAGMENT"] == "2":
    raise RuntimeError("this collective has failed")
dist.all_reduce(total)
