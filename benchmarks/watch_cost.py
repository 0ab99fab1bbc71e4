"""Measure the cost of watched objects in an ordinary step.

Steps of two small networks run on this host, with `watch()` and without, in turns, in seconds of a
single processor. The networks are far smaller, per tensor, than real networks, so the share of a
step is an upper bound. The seconds of Checkpoint in a step count by themselves too, since the
difference of two steps is noisier than the cost. The goal is 0.5 % of a step.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from parts.printing import Row, arguments, in_turns, middle, show, tell

from slurm_hooks.elastic import Checkpoint
from slurm_hooks.elastic.mailbox import Mailbox

GOAL_PERCENT = 0.5


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
    network = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    return network, torch.randn(8, 64, 128)


class Training:
    """A watched network, whose checkpoint can be told to ignore it."""

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
        self._number = 0
        self.own_s: list[float] = []

    def plain(self) -> float:
        """Return the processor seconds of a step that is not watched."""
        self._checkpoint._just_in_time = None
        return self._step()[0]

    def watched(self) -> float:
        """Return the processor seconds of a watched step."""
        self._checkpoint._just_in_time = self._just_in_time
        took_s, own_s = self._step()
        self.own_s.append(own_s)
        return took_s

    def end(self) -> None:
        """Stop watching, so that another network can be watched."""
        self._checkpoint._just_in_time = self._just_in_time
        self._checkpoint.end()

    def _step(self) -> tuple[float, float]:
        """Return the processor seconds of a step, and the part of Checkpoint in it."""
        began = time.thread_time()
        self._optimizer.zero_grad()
        self.network(self._inputs).square().mean().backward()
        self._optimizer.step()
        self._scheduler.step()
        reached = time.thread_time()
        self._checkpoint.reached(self._number)
        self._number += 1
        ended = time.thread_time()
        return ended - began, ended - reached


def measure(name: str, training: Training, pairs: int) -> Row:
    """Compare steps with and without."""
    in_turns(training.plain, training.watched, 5)
    training.own_s.clear()
    turns = in_turns(training.plain, training.watched, pairs)
    training.end()
    step_s = statistics.median(plain for plain, _ in turns)
    own_s = statistics.median(training.own_s)
    return {
        "network": name,
        "tensors": sum(1 for _ in training.network.parameters()),
        "buffers": sum(1 for _ in training.network.buffers()),
        "step_ms": round(1000 * step_s, 1),
        "own_us": round(1e6 * own_s),
        "own_percent": round(100 * own_s / step_s, 2),
        "paired_percent": middle((100 * (b - a) / step_s for a, b in turns), 2),
    }


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--pairs", type=int, default=200, help="steps with and without")
    pairs = parser.parse_args().pairs
    torch.set_num_threads(1)
    mailbox = Mailbox()
    os.environ.update(mailbox.environment())
    rows = []
    with tempfile.TemporaryDirectory(prefix="watch-") as work:
        for make in (convolutions, attention):
            training = Training(*make(), Path(work))
            rows.append(measure(make.__name__, training, pairs))
    show("a step with watched objects", rows)
    worst = max(row["own_percent"] for row in rows)
    return tell("watch-cost", worst <= GOAL_PERCENT, rows=rows, worst_percent=worst)


if __name__ == "__main__":
    sys.exit(main())
