"""Fragments on a host, each with its own GPUs, and their training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic.gang import Gang
from slurm_hooks.protocol.comment import Loss, parse

HERE = Path(__file__).parent
LONG = 1_000_000  # steps
SMALL = {"TRAIN_START_S": "0", "TRAIN_WORKERS": "0"}


@dataclass(frozen=True)
class Device:
    """A device: `kind` and `backend` in torch's words, `sizes_mib` of a state that is copied."""

    kind: str
    name: str
    backend: str
    count: int
    sizes_mib: tuple[int, ...]


STAND_IN = Device("cpu", "stand-in", "hccl", 8, (8, 16))


def found_device() -> Device | None:
    """The device that torch sees here."""
    import torch  # noqa: PLC0415  (takes seconds)

    if not torch.cuda.is_available():
        return None
    sizes = (1024, 2048, 4096, 8192)
    name = torch.cuda.get_device_name(0)
    return Device("cuda", name, "nccl", torch.cuda.device_count(), sizes)


class Bench(Gang):
    """A Gang whose fragments each have their own GPUs."""

    def __init__(self, device: Device, job_path: Path, work: Path) -> None:
        super().__init__(job_path, work)
        self.device, self.script = device, HERE / "train_on_device.py"
        self.extra |= {"TRAIN_DEVICE": device.kind, "TRAIN_BACKEND": device.backend}
        self.extra |= SMALL

    def train_as_users(self) -> None:
        """The first step comes ten seconds after the start, and other processes draw batches."""
        for name in SMALL:
            del self.extra[name]

    def begin(self, fragment: int) -> None:
        """Start a fragment that trains until it is told not to."""
        self._start_on(fragment, [fragment - 1])

    def begin_part(self, fragment: int, gpus: range) -> None:
        """The same on a part of a node, with a process for each of these GPUs."""
        each = "gpu" if self.device.kind == "cuda" else str(len(gpus))
        self.extra |= {"PET_NPROC_PER_NODE": each, "SLURM_GPUS_ON_NODE": str(len(gpus))}
        self._start_on(fragment, gpus)

    def _start_on(self, fragment: int, gpus: Sequence[int]) -> None:
        every = ",".join(map(str, range(self.device.count)))
        names = (os.environ.get("CUDA_VISIBLE_DEVICES") or every).split(",")  # of this allocation
        self.extra |= {"CUDA_VISIBLE_DEVICES": ",".join(names[gpu] for gpu in gpus)}
        self.extra |= {"SLURM_ARRAY_TASK_ID": str(fragment)}
        self.start(fragment, "1:2", LONG)

    def reported_loss(self) -> Loss | None:
        """The cost of an interruption that the job reports."""
        texts = [path.read_text() for path in self.work.glob("comment.*")]
        losses = (parse(text).loss for text in texts)
        return next((loss for loss in losses if loss is not None), None)

    def figures(self, name: str) -> list[Any]:
        """The training's figures under this name, from any process."""
        rows = []
        for path in self.work.glob(f"{name}-*.jsonl"):
            lines = path.read_text().split("\n")[:-1]  # the last line may be incomplete
            rows += [json.loads(line) for line in lines]
        return rows


def copies_of(device: Device, mib: int) -> dict[str, Any]:
    """The time of the first and the later copies of this state, in a separate process."""
    words = [sys.executable, str(HERE / "copies.py"), device.kind, str(mib)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))
