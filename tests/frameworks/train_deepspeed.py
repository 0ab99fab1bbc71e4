"""The example for DeepSpeed, noting its steps.

Arguments: work directory, steps. TRAIN_STAGE: of ZeRO. TRAIN_NOTICE: a checkpoint is written before
a planned change, too."""

import os
import sys
import time
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from train_notes import RANK, WORLD, note_begin, note_step

from slurm_hooks.elastic import notice

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "deepspeed"))
from train import GLOBAL_BATCH, INPUTS, batch_of, config, newest, save

IS_WARNED = "TRAIN_NOTICE" in os.environ


def full(parameters: list[torch.nn.Parameter]) -> torch.nn.Module:
    """A model with `samples`, and the whole parameters."""
    with deepspeed.zero.GatheredParameters(parameters):
        plain = torch.nn.ParameterList([p.detach().clone() for p in parameters])
    plain.samples = []
    return plain


def main() -> None:
    work, steps = Path(sys.argv[1]), int(sys.argv[2])
    stage, place = int(os.environ.get("TRAIN_STAGE", "1")), work / "checkpoints"
    torch.set_num_threads(1)
    torch.manual_seed(5)
    deepspeed.init_distributed()
    model = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
    )
    tag = newest(place)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.01),
        config=config(tag, stage),
    )
    step = engine.load_checkpoint(str(place), tag=tag)[1]["step"] if tag else 0
    parameters = list(engine.parameters())
    note_begin(work, full(parameters), step)
    while step < steps:
        time.sleep(0.02)
        mine = batch_of(step)[RANK::WORLD].to(engine.device)
        loss = (engine(mine) - mine.sum(1, keepdim=True)).square().sum() * WORLD / GLOBAL_BATCH
        engine.backward(loss)
        engine.step()
        step += 1
        note_step(work, full(parameters), step)
        coming = notice() if IS_WARNED else None
        if coming or step % 10 == 0:
            save(engine, place, step)
        if coming:
            coming.ready()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
