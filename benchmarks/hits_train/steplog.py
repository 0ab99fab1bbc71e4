"""What the trainings of `benchmarks/hits.py` tell it: which samples a step takes, and that it is
done. Lines of JSON, one file per fragment and kind, written at once: the process may be killed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

_WHERE = Path(os.environ.get("HITS_LOG", "."))
_FRAGMENT = os.environ.get("SLURM_ARRAY_TASK_ID", "0")
_OPEN: dict[str, int] = {}


def take(step: int, samples: Iterable[int], epoch: int = 0) -> None:
    """This process is about to train on these samples, as its part of this step."""
    _write("takes", {"step": step, "samples": [int(each) for each in samples], "epoch": epoch})


def done(step: int) -> None:
    """The step is over, and what it learned is in the parameters."""
    _write("steps", {"step": step})


def _write(kind: str, line: dict[str, object]) -> None:
    if kind not in _OPEN:
        path = _WHERE / f"{kind}-{_FRAGMENT}.jsonl"
        _OPEN[kind] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    # Every round has a store, so a port, of its own.
    head = {"at": round(time.time(), 3), "round": os.environ.get("MASTER_PORT"), "world": world}
    os.write(_OPEN[kind], f"{json.dumps({**head, **line})}\n".encode())
