"""The unit of the sizes in a request: nodes, or the workers that fit on parts of nodes.

The forms of a request:

    --malleable=2-16                 nodes
    --malleable=4-64,unit=gpu        GPUs; with unit=2gpu a fragment has a multiple of 2
    --malleable=4-64,unit=task       tasks; with unit=4task a fragment has a multiple of 4
    --malleable=2-16,sizes=2,4,8,16  only these sizes; sizes=x2 are MIN, 2 MIN, 4 MIN and so on
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

REQUEST_VARIABLE = "SLURM_SPANK_MALLEABLE"
GPU, TASK = "gpu", "task"

_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_ALLOWED = re.compile(r"(?:\A|,)sizes=(?:x2|([0-9]{1,5}(?:,[0-9]{1,5})*))(?=,|\Z)")
_UNIT = re.compile(rf"unit=([1-9][0-9]{{0,4}})?({GPU}|{TASK})")


@dataclass(frozen=True)
class Counted:
    """The sizes of a request that counts workers, in multiples of `unit`. A worker is a GPU or a
    task (`kind`)."""

    smallest: int
    largest: int
    unit: int
    kind: str

    @property
    def text(self) -> str:
        """The sizes as a user sees them: `4 to 64 GPUs`."""
        return f"{self.smallest} to {self.largest} {'GPUs' if self.kind == GPU else 'tasks'}"


def counted(request: str) -> Optional[Counted]:
    """Return the sizes of a request that counts workers. None if it counts nodes, or is not a
    request. The plugin has refused all other texts."""
    first, *keys = request.split(",")
    sizes = _RANGE.fullmatch(first)
    unit = next(filter(None, map(_UNIT.fullmatch, keys)), None)
    if not sizes or not unit:
        return None
    return Counted(int(sizes[1]), int(sizes[2]), int(unit[1] or 1), unit[2])


def allowed(request: str) -> frozenset[int]:
    """Return the sizes that this request allows. Empty if it allows its whole range."""
    sizes, named = _RANGE.match(request), _ALLOWED.search(request)
    if not sizes or not named:
        return frozenset()
    if named[1]:
        return frozenset(map(int, named[1].split(",")))
    low, high = max(int(sizes[1]), 1), int(sizes[2])
    return frozenset(low << n for n in range(high.bit_length()) if low << n <= high)
