"""Count the rounds that a growing training throws away, and the steps that it makes meanwhile.

A training of one fragment gets newcomers one after another, as torchrun agents on this host.
Slurm's answer names all of them from the start. The script needs some seconds to its first step and
then steps ten times a second. A round without a step is thrown away: all its members started for
nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from parts.printing import arguments, show, tell

from elastic.gang import SCONTROL, Gang
from programs import write_programs
from slurm_hooks.protocol.jobpath import write_job_path

TRAIN = """
import os, sys, time
from pathlib import Path
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
import torch
import torch.distributed as dist
from slurm_hooks.elastic.mailbox import MailboxReader
from slurm_hooks.elastic.observed import Observed
from slurm_hooks.elastic.speed import Speed

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
time.sleep(float(os.environ["START_S"]))
agent, step, first_at = MailboxReader(os.environ), 0, 0.0
while True:
    time.sleep(0.1)
    dist.all_reduce(torch.ones(1))
    now, step = time.monotonic(), step + 1
    first_at = first_at or now
    agent.write_speed(Speed(first_at))
    agent.write_observed(Observed(step, step_s=0.1, stepped_at=now))
    if rank == 0:
        with open(Path(sys.argv[1], "steps.log"), "a") as file:
            file.write(f"{time.time():.3f} {step} {world}\\n")
"""
SQUEUE = """#!/bin/sh
seq -f '%g|RUNNING|9|1|{now}|{end}|None|' 1 {most}
"""


def grow(gang: Gang, newcomers: int, every_s: float, seconds: float) -> None:
    """Start an agent, then the newcomers, and return after so many seconds."""
    began = time.monotonic()
    for fragment in range(1, newcomers + 2):
        gang.extra["SLURM_ARRAY_TASK_ID"] = str(fragment)
        gang.start(fragment, f"1:{newcomers + 1}", 0)
        time.sleep(every_s)
    time.sleep(max(0.0, began + seconds - time.monotonic()))


def prepare(work: Path, newcomers: int, start_s: float) -> Gang:
    gang = Gang(write_job_path(work / "jobpath"), work)
    gang.script = work / "train.py"
    gang.script.write_text(TRAIN)
    now = int(time.time())
    squeue = SQUEUE.format(now=now, end=now + 86400, most=newcomers + 1)
    tools = work / "tools"
    tools.mkdir()
    write_programs(tools, {"squeue": squeue, "scontrol": SCONTROL})
    gang.extra |= {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "SLURM_ARRAY_JOB_ID": "77",
        "START_S": str(start_s),
        "MALLEABLE_LAST_CALL_S": "3",
        "MALLEABLE_KEEP_ALIVE_S": "10",
        "MALLEABLE_SETTLE_S": "1",
    }
    return gang


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--newcomers", type=int, default=8, help="newcomers")
    parser.add_argument("--every", type=float, default=8.0, help="seconds between two of them")
    parser.add_argument("--start", type=float, default=10.0, help="seconds to the first step")
    parser.add_argument("--seconds", type=float, default=300.0, help="seconds in all")
    given = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="malleable-growth-"))
    gang = prepare(work, given.newcomers, given.start)
    try:
        grow(gang, given.newcomers, given.every, given.seconds)
    finally:
        gang.stop()
    rounds, steps = gang.rounds(), gang.steps()
    row = {
        "rounds": len(rounds),
        "thrown away": len(rounds) - sum(step == 1 for _, step, _ in steps),
        "steps": len(steps),
        "steps of all processes": sum(world for _, _, world in steps),
        "fragments at the end": steps[-1][2] if steps else 0,
    }
    show(f"{given.newcomers} newcomers, one every {given.every:g} s", [row])
    if not row["thrown away"]:
        shutil.rmtree(work)
    return tell("growth", row["thrown away"] == 0, **row)


if __name__ == "__main__":
    sys.exit(main())
