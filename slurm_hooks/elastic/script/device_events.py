"""How far a device is that works behind the script: events, as torch has them for accelerators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch

_torch: Any = torch  # torch.Event and torch.Stream are typed for some accelerators only


def record() -> Any:
    """An event that is done once the device has come to here; None without a device at work."""
    kind = _at_work()
    if not kind:
        return None
    event = _torch.Event(kind)
    event.record()
    return event


def current() -> torch.device | None:
    """The device that this thread works on; None without one."""
    return _torch.accelerator.current_stream().device if _at_work() else None


def aside(device: torch.device | None) -> AbstractContextManager[Any]:
    """Within it, copies from the device do not queue behind what may hang there."""
    return nullcontext() if device is None else _on_own_stream(device)


@contextmanager
def _on_own_stream(device: torch.device) -> Iterator[None]:
    before = _torch.accelerator.current_stream(device)
    _torch.accelerator.set_stream(_torch.Stream(device))
    try:
        yield
    finally:
        _torch.accelerator.set_stream(before)


def is_captured() -> bool:
    """Whether what the script asks for now becomes a part of a CUDA graph. Its replays call no
    hook of an optimizer and count no version of a tensor."""
    return _torch.cuda.is_initialized() and bool(_torch.cuda.is_current_stream_capturing())


def check_devices(value: Any, path: str = "content") -> None:
    """Raises TypeError, which names it, for a tensor on a device that tells nothing of how far it
    is: no boundary of it could be trusted."""
    if isinstance(value, torch.Tensor):
        kind = value.device.type
        if kind != "cpu" and not _has_events(kind):
            raise TypeError(f"{path} is on {kind}, and torch has no events of {kind}")
    elif isinstance(value, dict):
        for key, inner in value.items():
            check_devices(inner, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            check_devices(inner, f"{path}[{number}]")


def _at_work() -> str:
    """The type of the accelerator that this process uses, empty if it uses none."""
    kind = _kind()
    module = torch.get_device_module(kind) if kind else None
    return kind if getattr(module, "is_initialized", lambda: kind)() else ""


@cache
def _kind() -> str:
    found = _torch.accelerator.current_accelerator()
    return found.type if found is not None else ""


@cache
def _has_events(kind: str) -> bool:
    if kind != _kind():  # torch knows one accelerator in each process
        return False
    try:
        _torch.Event(kind).record()
    except Exception:  # whatever its maker raises for what is not there
        return False
    return True
