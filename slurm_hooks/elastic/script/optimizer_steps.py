"""When torch's optimizers change what they train: they say so, whatever the script does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


class OptimizerSteps:
    """From now until `end`, of all optimizers of this process: `begin` is called before one changes
    anything, `pause` when its own part is over, after which the script may wait for others."""

    def __init__(self, begin: Callable[[], None], pause: Callable[[], None]) -> None:
        self._begin, self._pause = begin, pause
        self._hooks = (
            register_optimizer_step_pre_hook(self._on_step),
            register_optimizer_step_post_hook(self._on_done),
        )

    def end(self) -> None:
        """Nothing is called any more."""
        for hook in self._hooks:
            hook.remove()

    def _on_step(
        self, optimizer: torch.optim.Optimizer, words: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Called by torch before each step; returns the arguments if they are others now."""
        closure = named.get("closure") or (words[1] if len(words) > 1 else None)
        if closure is None:
            self._begin()
            return None
        if not type(optimizer).__module__.startswith("torch.optim."):
            self._begin()  # who knows when it computes the loss
            self._pause()
            return None
        return (optimizer,), {**named, "closure": self._begun_behind(closure)}

    def _begun_behind(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """torch's optimizers compute the loss, which changes nothing, before anything else."""

        def compute() -> Any:
            self._pause()  # not the first time: it has changed something
            loss = closure()
            self._begin()
            return loss

        return compute

    def _on_done(self, *_: Any) -> None:
        self._pause()
