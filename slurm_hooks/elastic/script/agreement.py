"""Agree on a value among all processes, at almost no cost for a step.

A reduction in each step would cost a part of a millisecond, and make a device and the script wait
for each other. So it is made about four times a second. If steps are short, its result is read a
call later, when it has long been there. The length of a step decides how often and how late. That
length is agreed too, so all processes reduce at the same call.
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
MOST_CALLS = 16  # steps may become much longer before this is known
LATE_S = 1.0  # a result is not read later


def calls_between(step_s: float) -> int:
    """Return at every how many calls a reduction is made, for steps of this length."""
    return max(1, min(MOST_CALLS, int(EVERY_S / max(step_s, 1e-6))))


class Agreement:
    """The agreement of the processes of the default group, which call `ask` equally often."""

    def __init__(self) -> None:
        self._step_s = math.inf  # as it was agreed
        self._calls, self._began = 0, -math.inf  # since the last reduction
        self._under_way: _Reduction | None = None

    def ask(self, look: Callable[[], list[float]], now: float) -> list[float]:
        """Return the largest of each number that `look` returns in the processes. The numbers are
        from now or from the last call. Return an empty list if this call made no reduction. `now`:
        seconds of a monotonic clock.
        """
        self._calls += 1
        if self._under_way is None:
            if self._calls < calls_between(self._step_s):
                return []
            self._under_way = _Reduction([*look(), (now - self._began) / self._calls])
            self._calls, self._began = 0, now
            if self._step_s < LATE_S:
                return []
        *largest, self._step_s = self._under_way.read()
        self._under_way = None
        return largest


class _Reduction:
    """A reduction under way. `read` waits for it, but not for later work of a device."""

    def __init__(self, numbers: list[float]) -> None:
        self._numbers = torch.tensor(numbers, device=device())
        self._work: Any = dist.all_reduce(self._numbers, op=dist.ReduceOp.MAX, async_op=True)
        self._done: Any = None
        if self._numbers.device.type != "cpu":
            self._work.wait()  # here only the device waits
            there, self._numbers = self._numbers, self._numbers.to("cpu", non_blocking=True)
            self._done = device_events.record(there.device)

    def read(self) -> list[float]:
        if self._done is not None:
            self._done.synchronize()
        else:
            self._work.wait()
        return list(self._numbers.tolist())
