"""A training with Hugging Face's Trainer as people write it, resuming from the last checkpoint. It
notes its steps and the samples of each.

Arguments: work directory, steps."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

SAMPLES, BATCH = 840, 12


class Samples(Dataset):
    """Numbers and their sum."""

    def __init__(self) -> None:
        self.x = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self.x[index], "labels": self.x[index].sum(), "index": index}


class Net(torch.nn.Module):
    """Small, with statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1)
        )
        self.samples: list[int] = []

    def forward(self, x: Any, labels: Any, index: Any) -> dict[str, torch.Tensor]:
        self.samples = index.tolist()
        time.sleep(0.02)
        return {"loss": (self.layers(x).squeeze(1) - labels).square().mean()}

    def sum(self) -> float:
        """That tells one state from another."""
        return float(torch.cat([p.detach().flatten() for p in self.parameters()]).double().sum())


def log(path: Path, line: str) -> None:
    with open(path, "a") as file:
        file.write(line + "\n")


class Notes(TrainerCallback):
    """What the test wants to know."""

    def __init__(self, work: Path, net: Net) -> None:
        self.work, self.net = work, net
        self.world = int(os.environ["WORLD_SIZE"])
        self.rank = int(os.environ["RANK"])
        self.fragment = int(os.environ["MALLEABLE_FRAGMENT"])

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        begin = {"rank": self.rank, "world": self.world, "fragment": self.fragment}
        begin |= {"restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"])}
        begin |= {"step": state.global_step, "sum": self.net.sum(), "t": time.time()}
        log(self.work / "begins.jsonl", json.dumps(begin))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        step = {"t": time.time(), "step": state.global_step, "world": self.world}
        step |= {"epoch": state.epoch, "samples": self.net.samples, "sum": self.net.sum()}
        log(self.work / f"steps-{self.fragment}.jsonl", json.dumps(step))
        if self.rank == 0:
            log(self.work / "steps.log", f"{time.time():.3f} {state.global_step} {self.world}")


def main() -> None:
    work, steps = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        output_dir=str(work / "out"),
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        accelerator_config={"split_batches": True},
        save_steps=int(os.environ.get("TRAIN_SAVE", "1000")),
        logging_steps=5,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    net = Net()
    trainer = Trainer(net, arguments, train_dataset=Samples(), callbacks=[Notes(work, net)])
    trainer.train(resume_from_checkpoint=True)
    if trainer.is_world_process_zero():
        (work / "finished").write_text(str(trainer.state.global_step))


if __name__ == "__main__":
    main()
