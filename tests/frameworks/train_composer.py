"""A training with Composer's Trainer. Arguments: output directory, epochs.

`autoresume` is left out, because its signal files of several nodes have one name in a save folder
that nodes share. `load_path` does the same.
"""

import os
import sys

import torch
from composer import Trainer
from composer.models import ComposerModel
from composer.utils import dist
from torch.utils.data import DataLoader, TensorDataset

OUT, EPOCHS = sys.argv[1], sys.argv[2]


class Net(ComposerModel):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return self.layer(batch[0])

    def loss(self, outputs: torch.Tensor, batch: list[torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.mse_loss(outputs, batch[1])


def main() -> None:

    torch.manual_seed(5)
    torch.set_num_threads(1)
    inputs = torch.randn(512, 8, generator=torch.Generator().manual_seed(1))
    samples = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model, last = Net(), os.path.join(OUT, "latest-rank0.pt")
    dist.initialize_dist("cpu")
    trainer = Trainer(
        model=model,
        optimizers=torch.optim.AdamW(model.parameters(), lr=0.01),
        train_dataloader=DataLoader(
            samples, batch_size=8, num_workers=2, sampler=dist.get_sampler(samples, shuffle=True)
        ),
        max_duration=f"{EPOCHS}ep",
        device="cpu",
        save_folder=OUT,
        save_interval="1ep",
        save_overwrite=True,
        load_path=last if os.path.exists(last) else None,
        progress_bar=False,
        auto_log_hparams=False,
    )
    trainer.fit()
    trainer.close()


if __name__ == "__main__":
    main()
