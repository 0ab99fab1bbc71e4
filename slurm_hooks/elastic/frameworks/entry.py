"""Let frameworks know us without a line in the script, by entry points in the metadata that a job
finds on its PYTHONPATH.

torch calls the entry points of the group `torch.backends` at every import of torch, in any process.
From then on a framework is prepared when it is imported. Lightning asks for callbacks itself. All
of it acts only in the training processes of a malleable job, and must not raise.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import ModuleType
from typing import Any

from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.names import OWN_CHECKPOINTS, lightning, refusal, unsupported
from slurm_hooks.elastic.script.after_import import AfterImport

SWITCH = "MALLEABLE_FRAMEWORKS"
_OURS = f"{__package__}."
# The function that prepares a module, and its place.
_READY = {
    "lightning.pytorch.trainer.connectors.accelerator_connector": ("lightning_world", "pytorch"),
    "pytorch_lightning.trainer.connectors.accelerator_connector": ("lightning_world", "pytorch"),
    "lightning.fabric.connector": ("lightning_world", "fabric"),
    "lightning_fabric.connector": ("lightning_world", "fabric"),
    "transformers.trainer": ("trainer", "get_ready"),
}

_UNCHANGED = "it is left unchanged"
_unsaid: list[str] = []

# The libraries that note the rank at their import, and the variable that they read.
_RANKED = {
    "lightning_utilities.core.rank_zero": "RANK",
    "torchmetrics.utilities.prints": "LOCAL_RANK",
}


def is_wanted(env: Mapping[str, str]) -> bool:
    """Tell whether frameworks are to be changed in processes with this environment."""
    return "MALLEABLE_JOB_ID" in env and env.get(SWITCH, "1") != "0"


def is_worker(env: Mapping[str, str]) -> bool:
    """Whether this is a training process of a malleable job, started by torch's launcher."""
    return is_wanted(env) and "TORCHELASTIC_RUN_ID" in env


@cache
def begin() -> None:
    """Prepare frameworks when they are imported."""
    try:
        if is_wanted(os.environ):
            then = {name: partial(_get_ready, *place) for name, place in _READY.items()}
            AfterImport(then).install()
    except Exception as error:  # torch could not be imported
        say(f"Lightning and transformers are left unchanged: {type(error).__name__}: {error}")


def tell_ranks(env: Mapping[str, str]) -> None:
    """Tell the rank to libraries that were imported before this process knew it."""
    for name, variable in _RANKED.items():
        noted: Any = getattr(sys.modules.get(name), "rank_zero_only", None)
        if hasattr(noted, "rank") and env.get(variable, "").isdigit():
            noted.rank = int(env[variable])
    _say_if_first(env)


def say_once(line: str) -> None:
    """Write to the job's log from the process of rank 0. A warm worker learns its rank later."""
    _unsaid.append(line)
    _say_if_first(os.environ)


def _say_if_first(env: Mapping[str, str]) -> None:
    while _unsaid and "RANK" in env:
        line = _unsaid.pop(0)
        if env["RANK"] == "0":
            say(line)


def _get_ready(place: str, name: str, module: ModuleType) -> None:
    try:
        ours = importlib.import_module(_OURS + place)
        function: Callable[[ModuleType], None] = getattr(ours, name)
        function(module)
    except Exception as error:  # another version of the library
        say_once(unsupported(module.__name__, _text(error), _UNCHANGED))


def lightning_callbacks() -> list[Any]:
    """Return the callbacks for the entry-point group `lightning.pytorch.callbacks_factory`."""
    return _callbacks("lightning.pytorch")


def pytorch_lightning_callbacks() -> list[Any]:
    """Return the callbacks for the package under its other name."""
    return _callbacks("pytorch_lightning")


def _callbacks(package: str) -> list[Any]:
    if not is_worker(os.environ):
        return []
    try:
        line = refusal(package, lightning(package), OWN_CHECKPOINTS)
        if not line:
            made: Any = importlib.import_module(f"{_OURS}lightning").callback
            return [made(package)]
    except Exception as error:  # another version of Lightning
        line = unsupported(package, _text(error), OWN_CHECKPOINTS)
    say_once(line)
    return []


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
