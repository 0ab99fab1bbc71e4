"""The common parts of these tests' training scripts: data, a model, and their notes."""

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

SAMPLES, BATCH = 840, 12
WORLD, RANK = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
FRAGMENT = int(os.environ["MALLEABLE_FRAGMENT"])


class Samples(Dataset):
    """Numbers and their sum."""

    def __init__(self) -> None:
        self.x = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self.x[index], "labels": self.x[index].sum(), "index": index}


class Net(torch.nn.Module):
    """A small net with statistics."""

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


def weights(net: torch.nn.Module) -> float:
    """A digest of the weights, which differs from state to state."""
    return float(torch.cat([p.detach().flatten() for p in net.parameters()]).double().sum())


def note_begin(work: Path, net: torch.nn.Module, step: int) -> None:
    """Note that a round begins after this step."""
    begin = {"rank": RANK, "world": WORLD, "fragment": FRAGMENT, "step": step}
    begin |= {"restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"])}
    _log(work / "begins.jsonl", json.dumps(begin | {"sum": weights(net), "t": time.time()}))


def note_step(work: Path, net: Any, step: int, epoch: float = 0) -> None:
    """Note a finished step."""
    row = {"t": time.time(), "step": step, "world": WORLD, "epoch": epoch}
    row |= {"samples": net.samples, "sum": weights(net), "round": os.environ["MASTER_PORT"]}
    _log(work / f"steps-{FRAGMENT}.jsonl", json.dumps(row))
    if RANK == 0:
        _log(work / "steps.log", f"{row['t']:.3f} {step} {WORLD}")


def wait_at_the_end(work: Path) -> None:
    """Stand for an evaluation after the training, if the test wants one."""
    if "TRAIN_TAIL" in os.environ:
        _log(work / "tails", str(FRAGMENT))
        while not (work / "enough").exists():
            time.sleep(0.05)


def _log(path: Path, line: str) -> None:
    with open(path, "a") as file:
        file.write(line + "\n")
