"""Hugging Face accelerate: the objects that it has prepared are kept at each step. Its users write
the loop themselves, so only they can say where a step ends.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.names import ACCELERATE, OWN_CHECKPOINTS, refusal
from slurm_hooks.elastic.script.checkpoint import Checkpoint


def watch_accelerator(accelerator: Any, path: str | Path | None = None) -> Checkpoint:
    """Return a checkpoint of all objects given to `accelerator.prepare` and
    `register_for_checkpointing`.

    Call it after them. `path` as for Checkpoint. Raises TypeError for an object that cannot be
    kept. With an unsupported accelerate it keeps no state.
    """
    if line := refusal("accelerate", ACCELERATE, OWN_CHECKPOINTS):
        if os.environ.get("RANK", "0") == "0":
            say(line)
        return _Unsupported(None)
    checkpoint = Checkpoint(path)
    checkpoint.watch(**_parts(accelerator))
    return checkpoint


class _Unsupported(Checkpoint):
    """A checkpoint without watched objects, so each process begins at the script's own
    checkpoints.
    """

    def resume(self) -> int:
        """Return 0: no step was kept."""
        return 0

    def save(self, *_: Any, **__: Any) -> None:
        """Keep no state."""


def _parts(accelerator: Any) -> dict[str, Any]:
    """Return the objects by name. Written against accelerate 1.15.

    A wrapped model or optimizer is watched without its wrapper, so that the kept state does not
    depend on the number of processes.
    """
    parts: dict[str, Any] = {}
    for n, model in enumerate(accelerator._models):
        parts[f"model{n}"] = accelerator.unwrap_model(model)
    for n, optimizer in enumerate(accelerator._optimizers):
        parts[f"optimizer{n}"] = optimizer.optimizer
    for n, scheduler in enumerate(accelerator._schedulers):
        parts[f"scheduler{n}"] = scheduler.scheduler
    for n, thing in enumerate(accelerator._custom_objects):
        parts[f"custom{n}"] = thing
    if accelerator.scaler is not None:
        parts["scaler"] = accelerator.scaler
    return parts
