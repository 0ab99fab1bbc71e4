"""Prepare for a copy of the state before it is needed.

To get pages in the node's memory takes longer than to fill them. The time of a copy is measured
with a part of the state, so that the log and the agent know it before the first node is lost.
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

SAMPLE = 64 << 20  # bytes that are copied to measure the time of a whole copy


class Readiness:
    """Gets both slots ready for `content` in a thread. Within `aside`, copies from a device do not
    wait for its other work. `tell` is called with the seconds of a copy, and its bytes.
    """

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
        """True if the slots are as ready as they can be."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._memory.make_ready(self._size)
        with suppressed(RuntimeError, MemoryError, doing="measuring how long a copy takes"):
            with self._aside():
                per_byte_s = _seconds_per_byte(self._sample)
            self._tell(per_byte_s * self._size, self._size)
        self._sample = []


def _seconds_per_byte(tensors: list[torch.Tensor]) -> float:
    """Return 0 if there is too little data. The values do not matter, so the training may change
    them.
    """
    parts = [tensor.reshape(-1)[: SAMPLE // tensor.element_size()] for tensor in tensors]
    if sum(part.nbytes for part in parts) < SAMPLE:
        return 0.0
    places = [torch.zeros_like(part, device="cpu") for part in parts]
    began = time.monotonic()
    for place, part in zip(places, parts):
        place.copy_(part)
    return (time.monotonic() - began) / sum(part.nbytes for part in parts)
