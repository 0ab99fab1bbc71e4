"""What a copy of the state needs is got before it is needed: pages in the node's memory take longer
to get than to fill. And what a copy will take is measured, with a part of it, so that the log
and the agent know before the first node is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from slurm_hooks.elastic.log import suppressed
from slurm_hooks.elastic.script.node_memory import NodeMemory
from slurm_hooks.elastic.script.packed import Packing

SAMPLE = 64 << 20  # bytes that are copied to see how long all of it takes


class Readiness:
    """Gets both slots ready for `content` in a thread. `aside` is where copies from a device do
    not wait for its other work; `tell` is called with the seconds of a copy, and its bytes."""

    def __init__(
        self,
        memory: NodeMemory,
        content: dict[str, Any],
        aside: Callable[[], AbstractContextManager[Any]],
        tell: Callable[[float, int], None],
    ) -> None:
        packing = Packing(content)
        self._size, self._sample = packing.shape.total, packing.largest(SAMPLE)
        self._memory, self._aside, self._tell = memory, aside, tell
        self._thread = threading.Thread(target=self._run, name="malleable-readiness", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether the slots are as ready as they can be."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._memory.make_ready(self._size)
        with suppressed(RuntimeError, MemoryError, doing="measuring how long a copy takes"):
            with self._aside():
                per_byte_s = _seconds_per_byte(self._sample)
            self._tell(per_byte_s * self._size, self._size)
        self._sample = []


def _seconds_per_byte(tensors: list[torch.Tensor]) -> float:
    """0 if there are too few to say. Their values do not matter, the training may change them."""
    parts = [tensor.reshape(-1)[: SAMPLE // tensor.element_size()] for tensor in tensors]
    if sum(part.nbytes for part in parts) < SAMPLE:
        return 0.0
    places = [torch.zeros_like(part, device="cpu") for part in parts]
    began = time.monotonic()
    for place, part in zip(places, parts):
        place.copy_(part)
    return (time.monotonic() - began) / sum(part.nbytes for part in parts)
