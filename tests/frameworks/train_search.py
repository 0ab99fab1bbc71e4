"""A typical use of lightning: a search in which each process draws the size of the model again."""

from __future__ import annotations

import os
import sys
import time

import torch
from lightning import pytorch as pl


class Drawn(pl.LightningModule):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = torch.nn.Linear(2, width)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        time.sleep(0.02)
        with open(os.path.join(sys.argv[1], "steps.log"), "a") as log:
            print(time.time(), self.global_step, 1, file=log)
        return self.net(batch[0]).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.ones(400, 2)), batch_size=4
    )
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Drawn(os.getpid()), loader)
