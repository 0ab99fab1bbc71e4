"""A Lightning training as users write it for a rigid job.

It has a number of nodes, writes its own checkpoints now and then, and resumes from the last. Two
processes draw its batches. Its first step comes ten seconds after its start (TRAIN_START_S). It
notes its steps and the samples of each. Arguments: work directory, steps.
"""

import json
import os
import sys
import time
from pathlib import Path

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

SAMPLES = 840
START_S = float(os.environ.get("TRAIN_START_S", "10"))


class Net(pl.LightningModule):
    """A small net with statistics."""

    def __init__(self, work: Path) -> None:
        super().__init__()
        self.work = work
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1)
        )

    def on_train_start(self) -> None:
        weights = torch.cat([p.detach().flatten() for p in self.parameters()])
        begin = {
            "rank": self.global_rank,
            "world": self.trainer.world_size,
            "fragment": int(os.environ["MALLEABLE_FRAGMENT"]),
            "restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
            "step": self.global_step,
            "sum": float(weights.double().sum()),
            "t": time.time(),
        }
        log(self.work / "begins.jsonl", json.dumps(begin))
        time.sleep(START_S / 2)  # as long as a compiler takes

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        x, index = batch
        self.samples = index.tolist()
        time.sleep(0.02)
        return (self.layers(x) - x.sum(1, keepdim=True)).square().mean()

    def on_train_batch_end(self, *_: object) -> None:
        weights = torch.cat([p.detach().flatten() for p in self.parameters()])
        step = {
            "t": time.time(),
            "step": self.global_step,
            "world": self.trainer.world_size,
            "epoch": self.current_epoch,
            "samples": self.samples,
            "round": os.environ["MASTER_PORT"],
            "sum": float(weights.double().sum()),
        }
        log(self.work / f"steps-{os.environ['MALLEABLE_FRAGMENT']}.jsonl", json.dumps(step))
        if self.global_rank == 0:
            log(self.work / "steps.log", f"{time.time():.3f} {self.global_step} {step['world']}")

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 500)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def log(path: Path, line: str) -> None:
    with open(path, "a") as file:
        file.write(line + "\n")


def wait_at_the_end(work: Path) -> None:
    """Stand for an evaluation after the training, if the test wants one."""
    if "TRAIN_TAIL" in os.environ:
        log(work / "tails", os.environ["MALLEABLE_FRAGMENT"])
        while not (work / "enough").exists():
            time.sleep(0.05)


def main(kind: type[Net] = Net, strategy: str = "auto") -> None:
    work, steps = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    time.sleep(START_S / 2)  # as long as its data and other modules take
    pl.seed_everything(5)
    inputs = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(1))
    world = int(os.environ["WORLD_SIZE"])
    nodes = int(os.environ.get(os.environ.get("TRAIN_NODES", ""), "4"))  # 4: of the rigid job
    loader = DataLoader(
        TensorDataset(inputs, torch.arange(SAMPLES)),
        batch_size=12 // world,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    saved = pl.callbacks.ModelCheckpoint(
        work / "checkpoints",
        every_n_train_steps=int(os.environ.get("TRAIN_SAVE", "1000")),
        save_last=True,
    )
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=nodes,
        strategy=strategy,
        max_steps=steps,
        max_epochs=-1,
        callbacks=[saved],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(kind(work), loader, ckpt_path="last")
    wait_at_the_end(work)
    if trainer.is_global_zero:
        (work / "finished").write_text(str(trainer.global_step))


if __name__ == "__main__":
    main()
