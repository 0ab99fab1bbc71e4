"""The objects whose state is kept at each step, without a copy of all of it in every step.

Between the end of a step and the optimizer's part of the next, parameters and the state of
optimizers do not change, so they stay in place. The rest changes during a step, is small, and is
copied at each boundary: buffers (such as the statistics of BatchNorm), learning rates, schedulers,
scalers, samplers. Other modules decide when and where the state is saved.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from slurm_hooks.elastic.script.packed import is_part

# Their state_dict() is a part of the whole, or all processes must ask for it together.
_SHARDED = frozenset(
    {"FullyShardedDataParallel", "ZeroRedundancyOptimizer"}
    | {"DeepSpeedZeroOptimizer", "DeepSpeedZeroOptimizer_Stage3"}
)


class Part(Protocol):
    """A watched object."""

    def copy(self, spare: Any) -> Any:
        """Return a copy of the state that changes outside of optimizer.step(). `spare` is an
        earlier copy that is no longer needed, or `None`.
        """

    def content(self, copied: Any) -> Any:
        """Return the whole state: the live part, and `copied` for the part that changes."""

    def load(self, content: Any) -> None:
        """Put the object into this state."""


@dataclass(frozen=True)
class _Volatile:
    """The state that a forward pass changes in a module, by the names in its state."""

    buffers: dict[str, torch.Tensor]
    extras: dict[str, Any]


class _Module:
    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        modules = [  # listed once: walking all modules is too slow for every step
            (f"{prefix}." if prefix else "", inner)
            for prefix, inner in module.named_modules(remove_duplicate=False)
        ]
        self._buffers = [(prefix, inner._buffers) for prefix, inner in modules if inner._buffers]
        plain = torch.nn.Module.get_extra_state
        self._extras = [
            (f"{prefix}_extra_state", inner)
            for prefix, inner in modules
            if type(inner).get_extra_state is not plain
        ]

    def copy(self, spare: _Volatile | None) -> _Volatile:
        live = {
            prefix + name: buffer
            for prefix, buffers in self._buffers
            for name, buffer in buffers.items()
            if buffer is not None  # it may be there later
        }
        extras = {key: copy.deepcopy(inner.get_extra_state()) for key, inner in self._extras}
        old = spare.buffers if spare else {}
        if spare is None or old.keys() != live.keys() or not _have_same_form(old, live):
            copied = {key: buffer.detach().clone() for key, buffer in live.items()}
            return _Volatile(copied, extras)
        if live:
            with torch.no_grad():
                torch._foreach_copy_([old[key] for key in live], list(live.values()))
        return _Volatile(old, extras)

    def content(self, copied: _Volatile) -> dict[str, Any]:
        state = dict(self._module.state_dict())
        known = {**copied.buffers, **copied.extras}
        for key in state.keys() & known.keys():  # a buffer that is not in it is not persistent
            state[key] = known[key]
        here = {prefix + name for prefix, buffers in self._buffers for name in buffers}
        for key in state.keys() & (here - known.keys()):  # it was not there yet
            del state[key]
        return state

    def load(self, content: Any) -> None:
        self._module.load_state_dict(content)


class _Optimizer:
    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def copy(self, spare: Any) -> list[dict[str, Any]]:
        return [
            {key: _copy(value) for key, value in group.items() if key != "params"}
            for group in self._optimizer.param_groups
        ]

    def content(self, copied: list[dict[str, Any]]) -> dict[str, Any]:
        state = dict(self._optimizer.state_dict())
        groups = zip(state["param_groups"], copied)
        state["param_groups"] = [{**group, **settings} for group, settings in groups]
        return state

    def load(self, content: Any) -> None:
        self._optimizer.load_state_dict(content)


class _Stateful:
    def __init__(self, thing: Any) -> None:
        self._thing = thing

    def copy(self, spare: Any) -> Any:
        return copy.deepcopy(self._thing.state_dict())

    def content(self, copied: Any) -> Any:
        return copied

    def load(self, content: Any) -> None:
        self._thing.load_state_dict(content)


class _Generator(_Stateful):
    def copy(self, spare: Any) -> Any:
        return self._thing.get_state()

    def load(self, content: Any) -> None:
        self._thing.set_state(content)


class Watched:
    """The objects that a script named, or a function that returns the content of a checkpoint.
    Raises TypeError for an object that cannot be kept.
    """

    def __init__(
        self, function: Callable[[], dict[str, Any]] | None, objects: Mapping[str, Any]
    ) -> None:
        if (function is None) == (not objects):
            raise TypeError("watch() takes either a function or named objects, as in model=model")
        self._function = function
        self._parts = {name: _part(name, thing) for name, thing in objects.items()}
        self._parameters = _parameters(objects.values())
        self.sharded = next((n for n, thing in objects.items() if is_sharded(thing)), "")
        if not self.sharded and function is None:
            check_plain(self.content(self.copy({})))

    def copy(self, spare: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the state that changes outside of optimizer.step(), into `spare` if that fits.
        Raises TypeError for state that cannot be copied.
        """
        return {name: _copied(name, part, spare.get(name)) for name, part in self._parts.items()}

    def content(self, copied: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole state by name. With a function, return its result."""
        if self._function is not None:
            return self._function()
        return {name: part.content(copied[name]) for name, part in self._parts.items()}

    def versions(self) -> list[int]:
        """Return how often each parameter has been changed in place."""
        return [parameter._version for parameter in self._parameters]

    def addresses(self) -> set[int]:
        """Return where its parameters lie. A function's are not known."""
        return {parameter.data_ptr() for parameter in self._parameters}

    @property
    def has_objects(self) -> bool:
        """True if there are objects to load into. A function only returns a content."""
        return self._function is None

    def load(self, content: Mapping[str, Any]) -> None:
        """Put all objects into this state. Raises ValueError if an object is missing there."""
        missing = [name for name in self._parts if name not in content]
        if missing:
            has = ", ".join(content) or "no object"
            raise ValueError(
                f"the checkpoint holds {has}, but not {', '.join(missing)}, which watch() names; "
                "call load() instead and use the objects that it returns"
            )
        for name, part in self._parts.items():
            part.load(content[name])


def _copied(name: str, part: Part, spare: Any) -> Any:
    try:
        return part.copy(spare)
    except Exception as error:  # its own state_dict() or pickling may raise any error
        raise TypeError(f"the state of {name} cannot be copied: {first_line(error)}") from None


def _part(name: str, thing: Any) -> Part:
    if isinstance(thing, torch.nn.Module):
        return _Module(thing)
    if isinstance(thing, torch.optim.Optimizer):
        return _Optimizer(thing)
    if callable(getattr(thing, "state_dict", None)) and hasattr(thing, "load_state_dict"):
        return _Stateful(thing)
    if isinstance(thing, torch.Generator):
        return _Generator(thing)
    raise TypeError(
        f"watch({name}=...): {type(thing).__name__} has no state_dict() and load_state_dict()"
    )


def _parameters(things: Iterable[Any]) -> list[torch.Tensor]:
    """Return the parameters of modules and optimizers, once each, if they count their changes."""
    tensors: dict[int, torch.Tensor] = {}
    for thing in things:
        if isinstance(thing, torch.nn.Module):
            tensors |= {id(tensor): tensor for tensor in thing.parameters()}
        elif isinstance(thing, torch.optim.Optimizer):
            groups = thing.param_groups
            tensors |= {id(tensor): tensor for group in groups for tensor in group["params"]}
    return [tensor for tensor in tensors.values() if not tensor.is_inference()]


def is_sharded(thing: Any) -> bool:
    """Tell whether this process holds only its part of the state of an optimizer or a module."""
    if type(thing).__name__ in _SHARDED:
        return True
    if isinstance(thing, torch.nn.Module):
        if any(type(inner).__name__ in _SHARDED for inner in thing.modules()):
            return True
        return any(is_part(tensor) for tensor in thing.parameters())
    groups = getattr(thing, "param_groups", None) or ()
    return any(is_part(tensor) for group in groups for tensor in group["params"])


def check_plain(content: Mapping[str, Any]) -> None:
    """Raise TypeError unless all of it can be read back as data, without its own code."""
    for name, part in content.items():
        text = io.BytesIO()
        try:
            torch.save(_without_tensors(part), text)
            text.seek(0)
            torch.load(text, weights_only=True)
        except Exception as error:  # its own pickling may raise any error
            raise TypeError(
                f"the state of {name} is not plain data (tensors, numbers, texts, lists, "
                f"dictionaries) and cannot be kept: {first_line(error)}"
            ) from None


def _without_tensors(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return None
    if type(value) in (dict, list, tuple):
        with suppress(RecursionError):
            if isinstance(value, dict):
                return {key: _without_tensors(inner) for key, inner in value.items()}
            return type(value)(_without_tensors(inner) for inner in value)
    return value


def _have_same_form(some: Mapping[str, torch.Tensor], others: Mapping[str, torch.Tensor]) -> bool:
    return all(
        some[key].shape == b.shape and some[key].dtype == b.dtype and some[key].device == b.device
        for key, b in others.items()
    )


def _copy(value: Any) -> Any:
    if isinstance(value, (int, float, str, bool, type(None))):
        return value
    return copy.deepcopy(value)


def first_line(error: BaseException) -> str:
    """Return the error's text in a single line."""
    return (str(error).partition("\n")[0] or type(error).__name__)[:200]
