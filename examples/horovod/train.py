"""Train a softmax regression on handwritten digits with Horovod, as an ordinary script.

It resumes from `checkpoint.pt` with any number of ranks. The global batch depends on the step
alone, so no digit is lost or used twice.
"""

import argparse
import json
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

BATCH, RATE = 64, 0.3
CHECKPOINT, RESULT = Path("checkpoint.pt"), Path("result.json")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument(
        "--pace", type=float, default=0.0, help="seconds of work shared by all ranks"
    )
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    options = parser.parse_args()
    hvd.init()
    torch.set_num_threads(1)
    rank, size = hvd.rank(), hvd.size()
    images, labels = map(torch.tensor, load_digits(return_X_y=True))
    images = (images / 16).float()
    held_out = torch.arange(len(labels)) % 5 == 0
    mine, step = torch.nonzero(~held_out).ravel(), 0
    model = torch.nn.Linear(64, 10)
    if CHECKPOINT.exists():
        saved = torch.load(CHECKPOINT)
        model.load_state_dict(saved["model"])
        step = saved["step"]
    # Sums, as the shares of a batch differ by one where it cannot be divided.
    plain = torch.optim.SGD(model.parameters(), lr=RATE / BATCH)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), op=hvd.Sum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    step = int(hvd.broadcast(torch.tensor(step), root_rank=0))
    while step < options.steps:
        order = torch.randperm(len(mine), generator=torch.Generator().manual_seed(step))
        chosen = mine[order[:BATCH]][rank::size]
        optimizer.zero_grad()
        cross_entropy(model(images[chosen]), labels[chosen], reduction="sum").backward()
        optimizer.step()
        step += 1
        time.sleep(options.pace / size)
        if rank == 0 and (step % options.every == 0 or step == options.steps):
            draft = CHECKPOINT.with_suffix(".tmp")
            torch.save({"model": model.state_dict(), "step": step}, draft)
            draft.replace(CHECKPOINT)
            print(f"step {step} of {options.steps}: {size} ranks", flush=True)
    if rank == 0:
        right = model(images[held_out]).argmax(1) == labels[held_out]
        accuracy = round(right.float().mean().item(), 4)
        RESULT.write_text(json.dumps({"steps": step, "accuracy": accuracy}))


if __name__ == "__main__":
    main()
