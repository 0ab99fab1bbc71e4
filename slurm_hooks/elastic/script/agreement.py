"""What processes see alone, agreed among all of them, so that a step hardly pays for it.

A reduction in each step would cost a part of a millisecond, and make a device and the script wait
for each other. So it is made four times a second or so, and where steps are short its result is
read a call later, when it has long been there. How often, and how late, depends on how long a step
takes. The duration of a step is agreed too, so all processes reduce at the same call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from slurm_hooks.elastic.script import device_events
from slurm_hooks.elastic.script.group_backend import device

EVERY_S = 0.25
MOST_CALLS = 16  # steps may become much longer before that is known
LATE_S = 1.0  # a result is not read later than that


def calls_between(step_s: float) -> int:
    """At every how many calls a reduction is made, if a step takes so long."""
    return max(1, min(MOST_CALLS, int(EVERY_S / max(step_s, 1e-6))))


class Agreement:
    """Among the processes of the default group, which call `ask` equally often."""

    def __init__(self) -> None:
        self._step_s = math.inf  # as it was agreed
        self._calls, self._began = 0, -math.inf  # since the last reduction
        self._under_way: _Reduction | None = None

    def ask(self, look: Callable[[], list[float]], now: float) -> list[float]:
        """The largest of each number that `look` returns in the processes, now or at the call
        before, empty if that was not asked. `now`: seconds of a monotonic clock."""
        self._calls += 1
        if self._under_way is None:
            if self._calls < calls_between(self._step_s):
                return []
            self._under_way = _Reduction([*look(), (now - self._began) / self._calls])
            self._calls, self._began = 0, now
            if self._step_s < LATE_S:
                return []
        *found, self._step_s = self._under_way.read()
        self._under_way = None
        return found


class _Reduction:
    """Begun; `read` waits for it, but not for what a device was asked for since."""

    def __init__(self, numbers: list[float]) -> None:
        self._numbers = torch.tensor(numbers, device=device())
        self._work: Any = dist.all_reduce(self._numbers, op=dist.ReduceOp.MAX, async_op=True)
        self._done: Any = None
        if self._numbers.device.type != "cpu":
            self._work.wait()  # here only the device waits
            self._numbers = self._numbers.to("cpu", non_blocking=True)
            self._done = device_events.record()

    def read(self) -> list[float]:
        if self._done is not None:
            self._done.synchronize()
        else:
            self._work.wait()
        return list(self._numbers.tolist())
