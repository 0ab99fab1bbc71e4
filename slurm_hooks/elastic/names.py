"""The private names of torch and of frameworks that we read or replace.

Any release of a library may rename some of them. Then a line in the job's log gives the missing
name, and the library stays unchanged: no job stops for it.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from typing import Any

Names = Mapping[str, tuple[str, ...]]  # by `module:Class`; parameters count where they are given

TORCH: Names = {
    "torch.distributed.elastic.agent.server.api:WorkerSpec": (
        "__post_init__(self)",
        *("entrypoint", "args", "local_world_size", "rdzv_handler", "max_restarts"),
    ),
    "torch.distributed.elastic.multiprocessing.subprocess_handler:SubprocessHandler": (
        *("_popen(self, args, env)", "_stdout", "_stderr"),
    ),
}
TRANSFORMERS: Names = {
    "transformers.trainer:": ("TrainerCallback",),
    "transformers.trainer:Trainer": (
        *("train(self, resume_from_checkpoint)", "_save_checkpoint"),
        "_load_from_checkpoint(self, resume_from_checkpoint, model)",
        *("_load_optimizer_and_scheduler(self, checkpoint)", "_load_scaler(self, checkpoint)"),
        *("is_fsdp_enabled", "is_deepspeed_enabled", "accelerator"),
        *("add_callback", "remove_callback"),
    ),
}
ACCELERATE: Names = {
    "accelerate.accelerator:Accelerator": (
        *("_models", "_optimizers", "_schedulers", "_custom_objects", "scaler", "unwrap_model"),
    ),
}
OWN_CHECKPOINTS = "training resumes from its own checkpoints only"


def lightning(package: str) -> Names:
    """Return the names of `lightning.pytorch` or `pytorch_lightning`."""
    connectors = f"{package}.trainer.connectors"
    return {
        f"{package}.trainer.trainer:Trainer": (
            *("_checkpoint_connector", "_data_connector", "_signal_connector", "fit_loop"),
        ),
        f"{connectors}.accelerator_connector:_AcceleratorConnector": ("__init__",),
        f"{connectors}.checkpoint_connector:_CheckpointConnector": (
            *("resume_start", "_ckpt_path", "_loaded_checkpoint"),
            "dump_checkpoint(self, weights_only)",
        ),
        f"{connectors}.data_connector:_DataConnector": (
            "_resolve_sampler(self, dataloader, shuffle, mode)",
        ),
        f"{connectors}.signal_connector:_SignalConnector": ("_original_handlers",),
        f"{package}.trainer.call:": ("_call_callbacks_state_dict(trainer)",),
        f"{package}.loops.fit_loop:_FitLoop": ("epoch_loop", "epoch_progress"),
        f"{package}.loops.training_epoch_loop:_TrainingEpochLoop": ("batch_progress",),
        f"{package}.loops.progress:_BatchProgress": ("current", "is_last_batch"),
        f"{package}.loops.progress:_ProcessedTracker": (
            *("ready", "started", "processed", "completed"),
        ),
    }


def missing(names: Names) -> list[str]:
    """Return the names that the installed library does not have, as `Class.name`."""
    return [each for place, wanted in names.items() for each in _missing_in(place, wanted)]


def unsupported(library: str, reason: str, instead: str) -> str:
    """Return the line for the job's log."""
    version = getattr(sys.modules.get(library.partition(".")[0]), "__version__", "")
    return f"{library} {version}".rstrip() + f" is not supported ({reason}): {instead}"


def refusal(library: str, names: Names, instead: str) -> str:
    """As `unsupported` if a name is missing, else an empty text."""
    absent = missing(names)
    return unsupported(library, f"no {', '.join(absent)}", instead) if absent else ""


def _missing_in(place: str, wanted: Iterable[str]) -> list[str]:
    module, _, kind = place.partition(":")
    try:
        owner: Any = importlib.import_module(module)
        owner = getattr(owner, kind) if kind else owner
    except ImportError:
        return [module]
    except AttributeError:
        return [f"{module}.{kind}"]
    lacks = (_lack(owner, name) for name in wanted)
    return [f"{kind or module}.{lack}" for lack in lacks if lack]


def _lack(owner: Any, wanted: str) -> str:
    """Return the name if it is missing, with its parameters if those differ, else an empty text."""
    name, _, parameters = wanted.partition("(")
    if not _has(owner, name):
        return name
    expected = parameters.rstrip(")").split(", ") if parameters else []
    is_same = not expected or _parameters(getattr(owner, name))[: len(expected)] == expected
    return "" if is_same else wanted


def _has(owner: Any, name: str) -> bool:
    """Tell whether a class or module has the name, or a method of the class uses it."""
    if hasattr(owner, name):
        return True
    kinds = getattr(owner, "__mro__", ())
    functions = (f for kind in kinds for f in vars(kind).values() if inspect.isfunction(f))
    return any(name in inspect.unwrap(f).__code__.co_names for f in functions)


def _parameters(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # it is no function, or not written in Python
        return []
