"""The training that `benchmarks/rescale.py` disturbs: an ordinary torchrun script. A step is
an all_reduce and 30 ms; every step is kept, so a gap between two steps is pause and nothing else.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEP_S = 0.03


def main() -> None:
    work = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    checkpoint = work / "step"
    start = torch.tensor([int(checkpoint.read_text()) if checkpoint.exists() else 0])
    dist.broadcast(start, 0)
    step = int(start)
    fragment = int(os.environ["SLURM_ARRAY_TASK_ID"])
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    with open(work / "begins.jsonl", "a") as file:
        file.write(json.dumps({"rank": rank, "fragment": fragment, "restarts": restarts}) + "\n")
    log = open(work / f"steps-{fragment}.log", "a", buffering=1)  # noqa: SIM115  (until the end)
    while True:
        time.sleep(STEP_S)
        dist.all_reduce(torch.ones(256))
        step += 1
        if rank == 0:
            draft = work / "step.new"
            draft.write_text(str(step))
            draft.replace(checkpoint)
        log.write(f"{time.time():.3f} {step} {world}\n")


if __name__ == "__main__":
    main()
