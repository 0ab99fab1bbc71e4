"""A training with accelerate and our three lines. The global batch is fixed.

Arguments: work directory, steps.
"""

import sys
from itertools import cycle, islice
from pathlib import Path

import torch
from accelerate import Accelerator, DataLoaderConfiguration, skip_first_batches
from torch.utils.data import DataLoader
from train_notes import BATCH, Net, Samples, note_begin, note_step

from slurm_hooks.elastic import watch_accelerator


def main() -> None:
    work, steps = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(5)
    batches = DataLoaderConfiguration(split_batches=True)
    accelerator = Accelerator(cpu=True, dataloader_config=batches)
    net, data = Net(), Samples()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 500)
    model, optimizer, loader, scheduler = accelerator.prepare(
        net, optimizer, DataLoader(data, batch_size=BATCH, num_workers=2), scheduler
    )
    checkpoint = watch_accelerator(accelerator)
    step = checkpoint.resume()
    note_begin(work, net, step)
    here = skip_first_batches(loader, step % len(loader))
    for batches in islice(cycle([loader]), step // len(loader), steps // len(loader) + 1):
        for batch in here or batches:
            loss = model(**batch)["loss"]
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            step += 1
            note_step(work, net, step)
            checkpoint.reached(step)
        here = None


if __name__ == "__main__":
    main()
