"""A GAN with Lightning: two optimizers, manual optimization. Arguments: output directory, steps.

A batch has a step of the generator and a step of the discriminator, and Lightning counts both.
"""

import sys

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import binary_cross_entropy_with_logits as loss_of
from torch.utils.data import DataLoader, TensorDataset

OUT, STEPS = sys.argv[1], int(sys.argv[2])
LATENT, WIDTH = 16, 32


class Gan(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = _net(LATENT, WIDTH)
        self.discriminator = _net(WIDTH, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> None:
        (real,) = batch
        of_generator, of_discriminator = self.optimizers()
        noise = torch.randn(len(real), LATENT)
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        self._learn(of_generator, loss_of(self.discriminator(self.generator(noise)), ones))
        fake = self.generator(noise).detach()
        judged = loss_of(self.discriminator(real), ones) + loss_of(self.discriminator(fake), zeros)
        self._learn(of_discriminator, judged)

    def _learn(self, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        self.toggle_optimizer(optimizer)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        self.untoggle_optimizer(optimizer)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        parts = self.generator, self.discriminator
        return [torch.optim.Adam(part.parameters(), lr=2e-4, betas=(0.5, 0.999)) for part in parts]


def _net(inputs: int, outputs: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, 64), torch.nn.LeakyReLU(), torch.nn.Linear(64, outputs)
    )


def main() -> None:
    torch.set_num_threads(1)
    pl.seed_everything(5)
    data = TensorDataset(torch.randn(2000, WIDTH, generator=torch.Generator().manual_seed(1)))
    saves = ModelCheckpoint(dirpath=OUT, save_last=True, every_n_train_steps=200)
    trainer = pl.Trainer(
        accelerator="cpu",
        num_nodes=4,
        devices=1,
        max_steps=2 * STEPS,
        max_epochs=-1,
        strategy="ddp_find_unused_parameters_true",
        callbacks=[saves],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=2)
    trainer.fit(Gan(), loader, ckpt_path="last")


if __name__ == "__main__":
    main()
