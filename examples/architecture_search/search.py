"""Search the architecture of a small network for handwritten digits, as a worker of a pool.

This is regularised evolution (Real et al., arXiv 1802.01548). A candidate is a mutation of the best
result in a sample of the youngest. It is trained for a short time, and its accuracy is its result.
Publications on unfillable nodes used such searches as a workload. `claims.py` records lost workers.
An interrupted candidate continues from its checkpoint.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from claims import Claim, Tasks, this_worker
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

LAYERS = ("conv1", "conv3", "conv5", "depthwise3", "max", "skip")
WIDTHS = (4, 8, 16)
DEPTH = 4
POPULATION, SAMPLE = 8, 3
BATCH = 64
TERMINATED = 128 + signal.SIGTERM


class Leaving(Exception):
    """This worker has to leave. Its candidate has a checkpoint."""


def main() -> int:
    options = read_options()
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    torch.set_num_threads(1)
    options.place.mkdir(parents=True, exist_ok=True)
    tasks = Tasks(options.place, options.candidates, this_worker(), options.silence)
    touched = {task: claim.touched for task, claim in tasks.claims().items()}
    while not leaving.is_set():
        if claim := tasks.take(lambda task: propose(task, tasks.results())):
            try_one(tasks, claim, leaving, options)
        elif not tasks.open():
            tell("finish")
            return show(tasks.results())
        elif are_others_alive(tasks, touched):
            return 0  # they see to the rest
        else:
            time.sleep(options.silence / 10)
            continue
        touched = {task: claim.touched for task, claim in tasks.claims().items()}
    tell("wish", str(len(tasks.open())))
    return TERMINATED


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--place", type=Path, default=Path("search"), help="directory of the search"
    )
    parser.add_argument("--candidates", type=int, default=40, help="results wanted")
    parser.add_argument("--epochs", type=int, default=8, help="epochs of each candidate")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds added to each epoch")
    parser.add_argument("--silence", type=float, default=60.0, help="of a lost worker, in seconds")
    return parser.parse_args()


def are_others_alive(tasks: Tasks, touched: dict[int, float]) -> bool:
    """Tell whether every other claim was touched since this worker found no task."""
    claims, open_ = tasks.claims(), tasks.open()
    return all(claims[n].touched > touched.get(n, 0.0) for n in open_ if n in claims)


def propose(task: int, results: Sequence[dict[str, Any]]) -> list[Any]:
    """Width and layers of a candidate, the same for the same task and results."""
    dice = random.Random(task)
    if len(results) < POPULATION:
        return [dice.choice(WIDTHS), *(dice.choice(LAYERS) for _ in range(DEPTH))]
    youngest = results[-POPULATION:]
    parent = max(dice.sample(youngest, SAMPLE), key=lambda result: result["accuracy"])
    child = list(parent["plan"])
    place = dice.randrange(len(child))
    child[place] = dice.choice(LAYERS if place else WIDTHS)
    return child


def try_one(
    tasks: Tasks, claim: Claim, leaving: threading.Event, options: argparse.Namespace
) -> None:
    file = options.place / f"{claim.task}.checkpoint"
    with tasks.held(claim):
        try:
            accuracy, resumed_at = train(claim, file, leaving, options)
        except Leaving:
            accuracy, resumed_at = None, 0
    if accuracy is None:
        tasks.give_back(claim)
        return
    result = {"task": claim.task, "plan": claim.plan, "accuracy": accuracy}
    details = {"attempt": claim.attempt, "resumed_at": resumed_at, "worker": claim.worker.name}
    if tasks.put_down(claim, {**result, **details}):
        file.unlink(missing_ok=True)


def train(
    claim: Claim, file: Path, leaving: threading.Event, options: argparse.Namespace
) -> tuple[float, int]:
    """Accuracy on the held-out fifth, and the epoch at which this attempt began."""
    torch.manual_seed(claim.task)
    (train_x, train_y), test = data()
    model = network(claim.plan)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    first = load(file, model, optimizer)
    for epoch in range(first, options.epochs):
        order = torch.randperm(len(train_x), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(train_x[batch]), train_y[batch]).backward()
            optimizer.step()
        time.sleep(options.pace)
        save(
            file, {"epoch": epoch + 1, "model": model.state_dict(), "adam": optimizer.state_dict()}
        )
        print(f"candidate {claim.task} epoch {epoch} {claim.plan}", flush=True)
        if leaving.is_set():
            raise Leaving
    return accuracy_of(model, *test), first


def network(plan: Sequence[Any]) -> nn.Module:
    """8 x 8 pixels to ten classes, through the layers of the plan."""
    width, *names = plan
    layers = [layer(name, width) for name in names]
    head = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 10)]
    return nn.Sequential(nn.Conv2d(1, width, 1), *layers, *head)


def layer(name: str, width: int) -> nn.Module:
    """A layer that keeps the number of channels and the size of the picture."""
    if name == "skip":
        return nn.Identity()
    if name == "max":
        return nn.MaxPool2d(3, stride=1, padding=1)
    size = int(name[-1])
    groups = width if name.startswith("depthwise") else 1
    inner = nn.Conv2d(width, width, size, padding=size // 2, groups=groups)
    return nn.Sequential(inner, nn.BatchNorm2d(width), nn.ReLU())


def data() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    pictures, labels = load_digits(return_X_y=True)
    parts = train_test_split(pictures / 16, labels, test_size=0.2, random_state=0)
    x, test_x = (torch.tensor(p, dtype=torch.float32).reshape(-1, 1, 8, 8) for p in parts[:2])
    y, test_y = (torch.tensor(p) for p in parts[2:])
    return (x, y), (test_x, test_y)


def accuracy_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


def load(file: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the checkpoint, and return the epoch at which to continue."""
    if not file.exists():
        return 0
    saved = torch.load(file, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["adam"])
    return int(saved["epoch"])


def save(file: Path, content: dict[str, Any]) -> None:
    """Save as a whole or not at all."""
    draft = file.with_suffix(f".{os.getpid()}.draft")
    torch.save(content, draft)
    draft.replace(file)


def tell(*words: str) -> None:
    """Tell the planner, if there is a planner, how many nodes are useful or that all is done."""
    if "MALLEABLE_JOB_ID" in os.environ and (command := shutil.which("malleable")):
        subprocess.run([command, *words], check=False, timeout=20)


def show(results: Sequence[dict[str, Any]]) -> int:
    """Print the three best results, each on a line."""
    for result in sorted(results, key=lambda each: -each["accuracy"])[:3]:
        print(f"{result['accuracy']:.3f} {result['plan']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
