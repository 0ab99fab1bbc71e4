"""Train with DeepSpeed's ZeRO on a number of processes that changes.

Each process holds its part of the state, and only the same number of processes can load a
checkpoint of DeepSpeed. Another number first converts it into DeepSpeed's universal form. Copy
`save`, `newest` and `universal` into your script. They do not import this project.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist

GLOBAL_BATCH, INPUTS = 60, 8
WHOLE = re.compile(r"step-(\d+)-of-(\d+)")


def save(engine: Any, place: Path, step: int) -> None:
    """Save in all processes, into a new directory that no stopped process has used.

    The directory gets its name when all processes have written their parts. DeepSpeed's own file
    `latest` may name it before.
    """
    draft = [f"new-{uuid.uuid4().hex}"]
    dist.broadcast_object_list(draft)
    engine.save_checkpoint(str(place), tag=draft[0], client_state={"step": step}, save_latest=False)
    if dist.get_rank() == 0:
        os.replace(place / draft[0], place / f"step-{step}-of-{dist.get_world_size()}")


def newest(place: Path) -> str:
    """The newest whole checkpoint, in a form that this number of processes can load, or an empty
    text.

    All processes start from the checkpoint that rank 0 finds.
    """
    chosen = [""]
    if dist.get_rank() == 0 and place.is_dir():
        for left in place.glob("new-*"):
            shutil.rmtree(left, ignore_errors=True)
        named = [match for path in place.iterdir() if (match := WHOLE.fullmatch(path.name))]
        if named:
            last = max(named, key=lambda match: int(match[1]))
            is_ours = int(last[2]) == dist.get_world_size()
            chosen = [last[0] if is_ours else universal(place, last[0])]
    dist.broadcast_object_list(chosen)
    return chosen[0]


def universal(place: Path, tag: str) -> str:
    """Convert the checkpoint in a separate process, and return its name."""
    wanted, draft = place / f"{tag}-universal", place / f"new-{uuid.uuid4().hex}"
    if not wanted.exists():
        command = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal"]
        command += ["--input_folder", str(place / tag), "--output_folder", str(draft)]
        command += ["--inject_missing_state"]  # else Megatron-DeepSpeed only
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        os.replace(draft, wanted)
    return wanted.name


def config(tag: str, stage: int) -> dict[str, Any]:
    """DeepSpeed's settings. The script makes the batches itself, so the batch counts as 1."""
    return {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": stage},
        "checkpoint": {"load_universal": tag.endswith("-universal")},
    }


def batch_of(step: int) -> torch.Tensor:
    """Inputs of all processes (sample, input), which depend on the step alone."""
    return torch.randn(GLOBAL_BATCH, INPUTS, generator=torch.Generator().manual_seed(step))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=600, help="steps to train in all")
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--stage", type=int, default=1, choices=(1, 2, 3), help="stage of ZeRO")
    parser.add_argument("--place", type=Path, default=Path("checkpoints"))
    options = parser.parse_args()
    torch.manual_seed(5)
    deepspeed.get_accelerator().set_device(int(os.environ["LOCAL_RANK"]))
    deepspeed.init_distributed()
    rank, world = dist.get_rank(), dist.get_world_size()
    model = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
    )
    tag = newest(options.place)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.01),
        config=config(tag, options.stage),
    )
    done = 0
    if tag:
        _, kept = engine.load_checkpoint(str(options.place), tag=tag)
        done = kept["step"]
    if rank == 0:
        print(f"step {done} of {options.steps}: {world} processes, {tag or 'new'}", flush=True)
    while done < options.steps:
        mine = batch_of(done)[rank::world].to(engine.device)
        # DeepSpeed averages over processes. This scale makes it the mean over the global batch.
        loss = (engine(mine) - mine.sum(1, keepdim=True)).square().sum() * world / GLOBAL_BATCH
        engine.backward(loss)
        engine.step()
        done += 1
        if done % options.every == 0 or done == options.steps:
            save(engine, options.place, done)
            if rank == 0:
                print(f"step {done} of {options.steps}: loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
