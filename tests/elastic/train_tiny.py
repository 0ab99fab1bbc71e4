"""The smallest training: an all_reduce per step, the step number as checkpoint.

It makes no step while the file `wait` exists. Its steps are seen as those of an optimizer are,
whose import takes two seconds of a processor.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from slurm_hooks.elastic.mailbox import MailboxReader
from slurm_hooks.elastic.observed import Observed
from slurm_hooks.elastic.speed import Speed

# There is no optimizer here. A warm worker reads this line too.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
STEP_S = float(os.environ.get("TRAIN_STEP_S", "0.03"))
work, target = Path(sys.argv[1]), int(sys.argv[2])
crash_at = int(sys.argv[3]) if len(sys.argv) > 3 else -1
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
checkpoint = work / "step"
step = int(checkpoint.read_text()) if checkpoint.exists() else 0
start = [step]
dist.broadcast_object_list(start, 0)
step = start[0]
begin = {
    "rank": rank,
    "world": world,
    "fragment": int(os.environ["MALLEABLE_FRAGMENT"]),
    "restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
    "step": step,
    "t": time.time(),
    "options": sys.argv[4:],
}
with open(work / "begins.jsonl", "a") as file:
    file.write(json.dumps(begin) + "\n")
seen, first_at = MailboxReader(os.environ), 0.0
while step < target:
    time.sleep(STEP_S)
    while (work / "wait").exists():
        time.sleep(STEP_S)
    total = torch.tensor([1.0, float((work / "enough").exists())])
    dist.all_reduce(total)
    assert int(total[0]) == world
    if total[1]:
        break
    step += 1
    first_at = first_at or time.monotonic()
    seen.write_speed(Speed(first_at))
    seen.write_observed(Observed(step, step_s=STEP_S, stepped_at=time.monotonic()))
    if step == crash_at:
        raise RuntimeError("this script is broken")
    if rank == 0:
        draft = work / "step.new"
        draft.write_text(str(step))
        draft.replace(checkpoint)
        with open(work / "steps.log", "a") as file:
            file.write(f"{time.time():.3f} {step} {world}\n")
dist.barrier()
if rank == 0:
    (work / "finished").write_text(str(world))
dist.destroy_process_group()
