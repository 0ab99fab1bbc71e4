"""A training that has made its last step. Its first rank has ended, and the others wait in a last
barrier, for as long as a lost peer makes them wait under NCCL.
"""

import sys
import time
from pathlib import Path

import torch.distributed as dist

work = Path(sys.argv[1])
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
if world == 3 and rank:
    (work / f"waits-{rank}").touch()
    time.sleep(1000)
while world == 3 and len(list(work.glob("waits-*"))) < 2:
    time.sleep(0.05)  # a rank that is still connecting would fail if this rank ended now
dist.destroy_process_group()
