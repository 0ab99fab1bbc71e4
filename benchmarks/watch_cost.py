"""What watched objects cost in an ordinary step: `python benchmarks/watch_cost.py`.

Steps of two small networks on this host, with `watch()` and without, in turn, in seconds of one
processor, so that what else the host does matters little. The networks are far smaller, per
tensor, than real ones, so the share of a step is an upper bound. What Checkpoint does in a step is
measured by itself too, since the difference of two steps is noisier than what is sought.

The last line is one JSON object; exit code 1 if a share is above the goal of 0.5 %.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from slurm_hooks.elastic import Checkpoint
from slurm_hooks.elastic.mailbox import Mailbox

GOAL = 0.005


def convolutions() -> tuple[torch.nn.Module, torch.Tensor]:
    """Fifty layers with BatchNorm: many small buffers."""
    layers: list[torch.nn.Module] = [torch.nn.Conv2d(3, 32, 3, padding=1)]
    for _ in range(50):
        layers += [
            torch.nn.Conv2d(32, 32, 3, padding=1),
            torch.nn.BatchNorm2d(32),
            torch.nn.ReLU(),
        ]
    return torch.nn.Sequential(*layers), torch.randn(8, 3, 16, 16)


def attention() -> tuple[torch.nn.Module, torch.Tensor]:
    """Six layers of attention, without a buffer."""
    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), torch.randn(
        8, 64, 128
    )


class Training:
    """One network, watched, whose checkpoint can be told to look away."""

    def __init__(self, network: torch.nn.Module, inputs: torch.Tensor, work: Path) -> None:
        self.network, self._inputs = network, inputs
        self._optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
        self._scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self._optimizer, 10**6)
        self._checkpoint = Checkpoint(work / "checkpoint.pt")
        self._checkpoint.watch(
            network=network, optimizer=self._optimizer, scheduler=self._scheduler
        )
        self._just_in_time: Any = self._checkpoint._just_in_time
        assert self._just_in_time is not None, "no memory files here"

    def step(self, number: int) -> tuple[float, float]:
        """Processor seconds of a step, and of what Checkpoint does in it."""
        began = time.thread_time()
        self._optimizer.zero_grad()
        self.network(self._inputs).square().mean().backward()
        self._optimizer.step()
        self._scheduler.step()
        reached = time.thread_time()
        self._checkpoint.reached(number)
        ended = time.thread_time()
        return ended - began, ended - reached

    def look_away(self) -> None:
        self._checkpoint._just_in_time = None

    def look(self) -> None:
        self._checkpoint._just_in_time = self._just_in_time


def measure(name: str, training: Training, pairs: int) -> dict[str, object]:
    for number in range(5):
        training.step(number)
    plain, watched, own = [], [], []
    for pair in range(pairs):
        for is_watched in (pair % 2 == 0, pair % 2 == 1):
            (training.look if is_watched else training.look_away)()
            took_s, own_s = training.step(pair)
            (watched if is_watched else plain).append(took_s)
            if is_watched:
                own.append(own_s)
    step_s = statistics.median(plain)
    paired = statistics.median(b - a for a, b in zip(plain, watched)) / step_s
    return {
        "network": name,
        "tensors": sum(1 for _ in training.network.parameters()),
        "buffers": sum(1 for _ in training.network.buffers()),
        "step_ms": round(1000 * step_s, 1),
        "own_us": round(1e6 * statistics.median(own)),
        "own_percent": round(100 * statistics.median(own) / step_s, 2),
        "paired_percent": round(100 * paired, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    mailbox = Mailbox()
    os.environ.update(mailbox.environment())
    rows = []
    with tempfile.TemporaryDirectory(prefix="watch-") as work:
        for make in (convolutions, attention):
            network, inputs = make()
            training = Training(network, inputs, Path(work))
            rows.append(measure(make.__name__, training, options.pairs))
            training.look_away()
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    worst = max(float(str(row["own_percent"])) for row in rows)
    print(json.dumps({"rows": rows, "worst_percent": worst}))
    return int(worst > 100 * GOAL)


if __name__ == "__main__":
    sys.exit(main())
