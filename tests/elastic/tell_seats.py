"""Each process prints its place on its node. Then all save, and load the saved state."""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from slurm_hooks.elastic import Checkpoint
from slurm_hooks.elastic.mailbox import seat

work = Path(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
checkpoint = Checkpoint(work / "c.pt")
checkpoint.save(1, {"x": torch.full((1 << 20,), rank)}, to_file=False)
dist.barrier()
_, content = checkpoint.load()
place = {
    "fragment": int(os.environ["MALLEABLE_FRAGMENT"]),
    "rank": rank,
    "local_rank": os.environ["LOCAL_RANK"],
    "seat": seat(os.environ),
    "writers": content["x"].unique().tolist(),
}
(work / f"told-{rank}").write_text(json.dumps(place))
dist.barrier()
dist.destroy_process_group()
