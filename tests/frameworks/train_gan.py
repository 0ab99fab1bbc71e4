"""A GAN of Lightning as users write it: two optimizers, and the script calls them itself.

The discriminator's part takes most of a batch. So the processes wait for each other while the
generator has stepped and the discriminator has not. It notes as train_lightning.py does.
"""

import time
from pathlib import Path
from typing import Any

import torch
from train_lightning import Net, main


class Gan(Net):
    """The net of the other script is the generator."""

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self.automatic_optimization = False
        self.judge = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Linear(8, 1))

    def training_step(self, batch: list[torch.Tensor], _: int) -> None:
        x, index = batch
        self.samples = index.tolist()
        generator, judge = self.optimizers()
        self._step(generator, -self.judge(self.layers(x)).mean())
        time.sleep(0.15)
        wrong = self.judge(self.layers(x).detach()).mean()
        self._step(judge, wrong - self.judge(x.sum(1, keepdim=True)).mean())

    def _step(self, optimizer: Any, loss: torch.Tensor) -> None:
        self.toggle_optimizer(optimizer)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        self.untoggle_optimizer(optimizer)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        nets = self.layers, self.judge
        return [torch.optim.AdamW(net.parameters(), lr=0.001) for net in nets]


if __name__ == "__main__":
    main(Gan, "ddp_find_unused_parameters_true")
