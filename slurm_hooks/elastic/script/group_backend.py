"""The meaning of the default process group's backend for us: on which device tensors must be for an
exchange, and whether a process ends when its peer is lost.

Both follow from the text of `dist.get_backend_config()`, such as "cpu:gloo,cuda:nccl". The script's
own name of the backend is not enough: torch says "undefined" if the script gave no name.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

# torchrun switches their error handling on: a thread of theirs aborts the process whose peer is
# lost, and neither an exception nor a signal reaches Python (TORCH_NCCL_ASYNC_ERROR_HANDLING).
_ABORTING = frozenset({"nccl", "xccl", "hccl"})


def device() -> torch.device:
    """Return the device of tensors to be exchanged: the CPU, or the device that the group is bound
    to (`device_id=`), or the current device of its type.
    """
    kind = device_type(_config())
    group = dist.group.WORLD if dist.is_available() else None
    bound = getattr(group, "bound_device_id", None)
    return bound if bound is not None and bound.type == kind else torch.device(kind)


def may_abort() -> bool:
    """Tell whether a lost peer may end this process without a signal."""
    return aborts(_config())


def device_type(config: str) -> str:
    """Return the CPU if the backend takes its tensors, else the first device that it takes."""
    types = [pair.partition(":")[0] for pair in config.split(",")]
    return "cpu" if "cpu" in types else types[0]


def aborts(config: str) -> bool:
    """Tell whether one of these backends may end a process whose peer is lost."""
    return any(pair.partition(":")[2] in _ABORTING for pair in config.split(","))


def _config() -> str:
    if dist.is_available() and dist.is_initialized():
        return dist.get_backend_config()
    return "cpu:"
