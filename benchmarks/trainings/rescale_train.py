"""The training that `benchmarks/rescale.py` disturbs: an ordinary torchrun script.

A step is an all_reduce, 30 ms and a step of an optimizer. Every step is kept, so a gap between two
steps is only the pause.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from rescale_notes import STEP_S, is_over


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
    over, weight = torch.zeros(256), torch.zeros(256, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    while not over[0]:
        time.sleep(STEP_S)
        over = torch.full((256,), float(is_over()))
        dist.all_reduce(over)
        weight.grad = over
        optimizer.step()
        step += 1
        if rank == 0:
            draft = work / "step.new"
            draft.write_text(str(step))
            draft.replace(checkpoint)
        log.write(f"{time.time():.3f} {step} {world}\n")


if __name__ == "__main__":
    main()
