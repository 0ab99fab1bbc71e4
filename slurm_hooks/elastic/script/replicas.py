"""Check that all processes hold the same state, before a single state is kept for all of them.

A sharded state has another part in each process. Kept as a single state, it would give the part of
one process to all, without an error. So all processes compare samples of their weights: parameters,
the state of optimizers, and other large tensors. Buffers, small tensors and Python values may
differ, as the statistics of BatchNorm do.

Samples may differ a little, since replicas on unlike processors drift apart by rounding. They are
exchanged by the store of the process group and not by a collective: a process that alone makes this
call would disturb the collectives of the others.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import math
from array import array
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch.distributed.distributed_c10d import _get_default_store

from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.script.packed import INSTEAD, LARGE, check_whole, is_plain

SAMPLES = 16  # of each tensor
PATIENCE_S = 20.0
_calls = itertools.count()  # all processes make the same calls
Named = tuple[str, torch.Tensor]


def difference(content: Callable[[], Any], world: int, parameters: Collection[int] = ()) -> str:
    """Return why the content cannot be kept for all processes, or an empty text.

    To be called by all. `parameters` are the addresses of all parameters in the content, so that
    its other tensors are buffers. Raises RuntimeError if another process does not call.
    """
    least = math.inf if parameters else LARGE
    try:
        kinds = _Weights(parameters or _living_parameters(), least)
        weights = list(kinds.of(content(), "content"))
        fault, samples = "", _samples(weights)
    except Exception as error:  # its own state_dict() may raise any error
        fault, weights, samples = str(error) or type(error).__name__, [], array("f")
    differs = _exchange(weights, samples, world)  # also after an error, since the others wait
    return fault or differs


def _living_parameters() -> set[int]:
    """Return the addresses of all parameters. A module's state does not say which tensors are."""
    kind = torch.nn.Parameter
    return {each.data_ptr() for each in gc.get_objects() if type(each) is kind}


@dataclass(frozen=True)
class _Weights:
    """Finds the tensors that replicas have in common: these parameters, the state of optimizers,
    and other tensors from `least` bytes on.
    """

    parameters: Collection[int]
    least: float

    def of(self, value: Any, path: str, is_of_optimizer: bool = False) -> Iterator[Named]:
        """Yield them with their names. Raises TypeError for a part of a sharded tensor."""
        if isinstance(value, torch.Tensor):
            check_whole(value, path)
            if is_plain(value) and value.is_floating_point() and value.numel():
                is_large = value.nbytes >= self.least or value.data_ptr() in self.parameters
                if is_of_optimizer or is_large:
                    yield path, value
        elif isinstance(value, (dict, list, tuple)):
            inside = value if isinstance(value, dict) else dict(enumerate(value))
            is_optimizer = inside.keys() >= {"state", "param_groups"}
            for key, inner in inside.items():
                is_its = is_of_optimizer or (is_optimizer and key == "state")
                yield from self.of(inner, f"{path}[{key!r}]", is_its)


def _samples(weights: list[Named]) -> array[float]:
    samples = array("f")
    for _, tensor in weights:
        places = torch.arange(SAMPLES, device=tensor.device) * (tensor.numel() - 1) // (SAMPLES - 1)
        with torch.no_grad():  # flatten() would copy all of a tensor that is not contiguous
            some = tensor[torch.unravel_index(places, tensor.shape)] if tensor.dim() else tensor
            some = torch.nan_to_num(some.float(), 0.0, 0.0, 0.0).expand(SAMPLES)
        samples.extend(some.tolist())
    return samples


def _exchange(weights: list[Named], samples: array[float], world: int) -> str:
    """Compare with the process that came first. Return how any of them differs."""
    key, store = f"malleable/same/{next(_calls)}/", _get_default_store()
    form = repr([(path, tuple(tensor.shape), tensor.dtype) for path, tensor in weights])
    mine = f"{hashlib.sha256(form.encode()).hexdigest()} {samples.tobytes().hex()}"
    if store.add(f"{key}come", 1) == 1:
        store.set(f"{key}first", mine)
    differs = _differs(mine, store.get(f"{key}first").decode(), weights)
    if differs:
        store.set(f"{key}differs", f"{differs}, so it cannot be kept; {INSTEAD}")
    if store.add(f"{key}gone", 1) == world:
        store.set(f"{key}all", "")
    _await(store, key, world)
    return store.get(f"{key}differs").decode() if store.check([f"{key}differs"]) else ""


def _await(store: Any, key: str, world: int) -> None:
    try:
        store.wait([f"{key}all"], timedelta(seconds=PATIENCE_S))
    except RuntimeError:
        say(
            f"{store.add(f'{key}gone', 0)} of {world} processes have called reached() or save() "
            "for the first time, and wait for the others: call it in all processes"
        )
        store.wait([f"{key}all"])


def _differs(mine: str, first: str, weights: list[Named]) -> str:
    (my_form, my_text), (form, text) = mine.split(" "), first.split(" ")
    if my_form != form:
        return "the state has other tensors in another process"
    here, there = (array("f", bytes.fromhex(samples)) for samples in (my_text, text))
    for n, (path, tensor) in enumerate(weights):
        part = slice(n * SAMPLES, (n + 1) * SAMPLES)
        if math.dist(here[part], there[part]) > _drift(tensor) * math.hypot(*there[part]):
            return f"{path} differs between the processes"
    return ""


def _drift(tensor: torch.Tensor) -> float:
    """Return by how much replicas may differ: by half of their digits."""
    return math.sqrt(max(torch.finfo(kind).eps for kind in (tensor.dtype, torch.float32)))
