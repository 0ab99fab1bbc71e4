"""Five trainings as users write them, without our library. They evaluate and save at times.

Rank 0 notes the time and the samples of all processes after each step.

Arguments: work directory, kind (plain, lightning, trainer, accelerate, streaming: accelerate on
data that the first process reads for all). UNKNOWING_STEP_S are the seconds of a step.
UNKNOWING_NETWORK is the share by which every doubling of the processes makes it longer.
"""

import math
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

WORK, KIND = Path(sys.argv[1]), sys.argv[2]
BATCH = 16
STEP_S = float(os.environ.get("UNKNOWING_STEP_S", "0.06"))
NETWORK = float(os.environ.get("UNKNOWING_NETWORK", "0"))
STEPS = 1_000_000
EVERY = 150  # steps between evaluations, and checkpoints


class Samples(Dataset):  # type: ignore[type-arg]
    """A few thousand samples."""

    def __init__(self, count: int = 4000) -> None:
        self.x = torch.randn(count, 8, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[index], "labels": self.x[index].sum()}


class Stream(IterableDataset):  # type: ignore[type-arg]
    """The same samples in their order."""

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        samples = Samples()
        return (samples[n] for n in range(len(samples)))


class Net(torch.nn.Module):
    """A small net whose step takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
        )

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.training:
            doublings = math.log2(int(os.environ["WORLD_SIZE"]))
            time.sleep(STEP_S * (1 + NETWORK * doublings))
        return {"loss": (self.layers(x)[:, 0] - labels).square().mean()}


def note(samples: int) -> None:
    """Note a finished step on so many samples in this process."""
    if os.environ["RANK"] == "0":
        with open(WORK / "own", "a") as file:
            file.write(f"{time.time()} {samples * int(os.environ['WORLD_SIZE'])}\n")


def plain() -> None:
    """A training as in torch's own examples. The batch is doubled on request."""
    torch.distributed.init_process_group("gloo")
    net = Net()
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    step = 0
    while step < STEPS:
        batch = BATCH * (2 if (WORK / "double").exists() else 1)
        data = Samples()
        sampler: Any = torch.utils.data.DistributedSampler(data)
        for one in DataLoader(data, batch, sampler=sampler, drop_last=True):
            optimizer.zero_grad()
            model(**one)["loss"].backward()
            optimizer.step()
            note(len(one["x"]))
            step += 1
            if step % EVERY == 0:
                evaluate(net)
                if os.environ["RANK"] == "0":
                    torch.save(net.state_dict(), WORK / "plain.pt")


def evaluate(net: Net) -> None:
    """Evaluate on other data, without gradients."""
    net.eval()
    with torch.no_grad():
        for one in DataLoader(Samples(400), 100):
            net(**one)
            time.sleep(0.2)
    net.train()


def lightning() -> None:
    """Train with a module and a Trainer."""
    import lightning.pytorch as pl  # noqa: PLC0415

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            return self.net(**batch)["loss"]  # type: ignore[no-any-return]

        def validation_step(self, batch: dict[str, torch.Tensor], _: int) -> None:
            time.sleep(0.2)

        def on_train_batch_end(self, _: Any, batch: dict[str, torch.Tensor], *more: Any) -> None:
            note(len(batch["x"]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        num_nodes=int(os.environ["WORLD_SIZE"]),
        max_steps=STEPS,
        val_check_interval=EVERY,
        check_val_every_n_epoch=None,
        logger=False,
        default_root_dir=WORK,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), DataLoader(Samples(), BATCH, shuffle=True), DataLoader(Samples(400), 100))


def trainer() -> None:
    """Train with Hugging Face's Trainer."""
    from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: PLC0415

    class Notes(TrainerCallback):
        def on_step_end(self, *_: Any, **more: Any) -> None:
            note(BATCH)

    arguments = TrainingArguments(
        output_dir=str(WORK / "out"),
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        dataloader_drop_last=True,
        eval_strategy="steps",
        eval_steps=EVERY,
        save_steps=EVERY,
        save_total_limit=1,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    Trainer(
        Net(), arguments, train_dataset=Samples(), eval_dataset=Samples(400), callbacks=[Notes()]
    ).train()


def accelerate(is_stream: bool = False) -> None:
    """A hand-written loop, with accelerate for the rest."""
    from accelerate import Accelerator  # noqa: PLC0415

    accelerator = Accelerator(cpu=True)
    net = Net()
    data, shuffle = (Stream(), None) if is_stream else (Samples(), True)
    loader: Any = DataLoader(data, BATCH, shuffle=shuffle, drop_last=True)
    model, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), loader)
    step = 0
    while step < STEPS:
        for one in loader:
            optimizer.zero_grad()
            accelerator.backward(model(**one)["loss"])
            optimizer.step()
            note(len(one["x"]))
            step += 1
            if step % EVERY == 0:
                evaluate(net)
                accelerator.save_state(str(WORK / "state"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(5)
    {
        "plain": plain,
        "lightning": lightning,
        "trainer": trainer,
        "accelerate": accelerate,
        "streaming": partial(accelerate, is_stream=True),
    }[KIND]()
