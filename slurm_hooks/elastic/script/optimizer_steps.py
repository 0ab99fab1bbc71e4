"""Hear from torch's optimizers when they change parameters, whatever the script does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


class OptimizerSteps:
    """Hears all optimizers of this process from now until `end`. `begin` is called before an
    optimizer changes a parameter. `pause` is called after its own part, when the script may wait
    for others.
    """

    def __init__(self, begin: Callable[[], None], pause: Callable[[], None]) -> None:
        self._begin, self._pause = begin, pause
        self._hooks = (
            register_optimizer_step_pre_hook(self._on_step),
            register_optimizer_step_post_hook(self._on_done),
        )

    def end(self) -> None:
        """Call no function any more."""
        for hook in self._hooks:
            hook.remove()

    def _on_step(
        self, optimizer: torch.optim.Optimizer, words: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Called by torch before each step. Returns the arguments if they are changed."""
        closure = named.get("closure") or (words[1] if len(words) > 1 else None)
        if closure is None:
            self._begin()
            return None
        if not type(optimizer).__module__.startswith("torch.optim."):
            self._begin()  # it may compute the loss at any time
            self._pause()
            return None
        return (optimizer,), {**named, "closure": self._begun_behind(closure)}

    def _begun_behind(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Make the step begin after the loss is computed: torch's optimizers compute it before any
        change.
        """

        def compute() -> Any:
            self._pause()  # from the second time on, parameters have changed
            loss = closure()
            self._begin()
            return loss

        return compute

    def _on_done(self, *_: Any) -> None:
        self._pause()
