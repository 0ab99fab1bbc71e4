"""Stand-ins for libraries that are not installed, with the parts that we use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

Standing = Callable[..., ModuleType]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Standing:
    """A module of a library that is not installed. Its packages have the version 6.0."""

    def made(name: str, **content: object) -> ModuleType:
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            path = ".".join(parts[:length])
            if path not in sys.modules:
                monkeypatch.setitem(sys.modules, path, ModuleType(path))
                sys.modules[path].__version__ = "6.0"  # type: ignore[attr-defined]
        vars(sys.modules[name]).update(content)
        return sys.modules[name]

    return made


class Trainer:
    """The parts of transformers' Trainer that we use."""

    def __init__(self) -> None:
        self.accelerator = self.is_fsdp_enabled = self.is_deepspeed_enabled = None

    def train(self, resume_from_checkpoint: Any = None) -> str:
        return "trained"

    def _save_checkpoint(self) -> None: ...
    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None: ...
    def _load_optimizer_and_scheduler(self, checkpoint: str) -> None: ...
    def _load_scaler(self, checkpoint: str) -> None: ...
    def add_callback(self, callback: object) -> None: ...
    def remove_callback(self, callback: object) -> None: ...
