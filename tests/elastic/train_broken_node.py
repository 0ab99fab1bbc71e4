"""A training that fails on the node of fragment 2 only. The others wait for it in a collective."""

import os
import sys
import time

import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()  # a rank that is still connecting would fail as well if another ended now
if os.environ["MALLEABLE_FRAGMENT"] == "2":
    sys.exit("this GPU is broken")
if dist.get_world_size() == 3:
    time.sleep(1000)
dist.destroy_process_group()
