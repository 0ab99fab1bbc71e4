"""How far a device is that works behind the script: events, as torch has them for accelerators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch

_torch: Any = torch  # torch.Event and torch.Stream are typed for some accelerators only


def record(device: torch.device | None = None) -> Any:
    """Return an event that is done when the device, by default the current device, reaches this
    point. Return `None` without a device at work.
    """
    kind = _at_work()
    if not kind:
        return None
    event = _torch.Event(kind)
    streams = [] if device is None else [_torch.accelerator.current_stream(device)]
    event.record(*streams)
    return event


def current() -> torch.device | None:
    """Return the device that this thread works on, or `None`."""
    return _torch.accelerator.current_stream().device if _at_work() else None


def aside(device: torch.device | None) -> AbstractContextManager[Any]:
    """Copy from the device without queueing behind its other work, which may hang."""
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
    """Tell whether the script's work now becomes a part of a CUDA graph. Its replays call no hook
    of an optimizer and count no version of a tensor.
    """
    return _torch.cuda.is_initialized() and bool(_torch.cuda.is_current_stream_capturing())


def check_devices(value: Any, path: str = "content") -> None:
    """Raise TypeError, with its name, for a tensor on a device without events: no boundary of it
    could be trusted.
    """
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
    """Return the type of the accelerator that this process uses, or an empty text."""
    kind = _kind()
    module = torch.get_device_module(kind) if kind else None
    return kind if getattr(module, "is_initialized", lambda: kind)() else ""


@cache
def _kind() -> str:
    accelerator = _torch.accelerator.current_accelerator()
    return accelerator.type if accelerator is not None else ""


@cache
def _has_events(kind: str) -> bool:
    if kind != _kind():  # torch knows a single accelerator in each process
        return False
    try:
        _torch.Event(kind).record()
    except Exception:  # a missing event may raise any error of its maker
        return False
    return True
