"""Hugging Face accelerate: what it has prepared is what is kept of each step. Its users write the
loop themselves, so only they can say where a step ends.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.names import ACCELERATE, OWN_CHECKPOINTS, refusal
from slurm_hooks.elastic.script.checkpoint import Checkpoint


def watch_accelerator(accelerator: Any, path: str | Path | None = None) -> Checkpoint:
    """A checkpoint of all that `accelerator.prepare` and `register_for_checkpointing` were given;
    to be called after them. `path` as for Checkpoint. Raises TypeError for what cannot be kept.
    With an accelerate that is not supported it keeps nothing."""
    if line := refusal("accelerate", ACCELERATE, OWN_CHECKPOINTS):
        if os.environ.get("RANK", "0") == "0":
            say(line)
        return _Nothing(None)
    checkpoint = Checkpoint(path)
    checkpoint.watch(**_parts(accelerator))
    return checkpoint


class _Nothing(Checkpoint):
    """Nothing is watched, so each process begins where the script's own checkpoints are."""

    def resume(self) -> int:
        """No step was kept."""
        return 0

    def save(self, *_: Any, **__: Any) -> None:
        """Keep nothing."""


def _parts(accelerator: Any) -> dict[str, Any]:
    """Written against accelerate 1.15. A wrapped model or optimizer is watched without its wrapper,
    so that what is kept does not depend on the number of processes."""
    found: dict[str, Any] = {}
    for n, model in enumerate(accelerator._models):
        found[f"model{n}"] = accelerator.unwrap_model(model)
    for n, optimizer in enumerate(accelerator._optimizers):
        found[f"optimizer{n}"] = optimizer.optimizer
    for n, scheduler in enumerate(accelerator._schedulers):
        found[f"scheduler{n}"] = scheduler.scheduler
    for n, thing in enumerate(accelerator._custom_objects):
        found[f"custom{n}"] = thing
    if accelerator.scaler is not None:
        found["scaler"] = accelerator.scaler
    return found
