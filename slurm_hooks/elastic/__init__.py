"""The part that runs inside a user's job: the `malleable` rendezvous of torchrun, and an optional
interface for scripts that want to lose less at a change of size:

    notice()            a change is coming: ask at a step boundary
    Checkpoint          a file, and a copy in the memory of every node
    ElasticBatches      the same global batches whatever the number of processes
    watch_accelerator() a Checkpoint of the objects that Hugging Face accelerate has prepared
    report()            say how far the training is, so that its speed is learned

It can be imported alone (standard library and torch only), because a job sees just this directory
on its PYTHONPATH.
"""

from __future__ import annotations

import importlib
from typing import Any

_OFFERED = {
    "notice": ".script.step_boundary",
    "Coming": ".script.step_boundary",
    "Checkpoint": ".script.checkpoint",
    "ElasticBatches": ".script.batches",
    "report": ".script.progress",
    "watch_accelerator": ".frameworks.accelerate",
}

__all__ = ["Checkpoint", "Coming", "ElasticBatches", "notice", "report", "watch_accelerator"]


def __getattr__(name: str) -> Any:
    """Import on first use: torchrun loads this package in jobs of all kinds."""
    if name in _OFFERED:
        return getattr(importlib.import_module(_OFFERED[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
