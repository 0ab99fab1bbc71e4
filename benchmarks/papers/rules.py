"""The cost of changes in the replays of papers, in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from slurm_hooks.replay.costs import Rescale


@dataclass(frozen=True)
class Rules:
    """The rules of a run: every change is answered at once.

    Ends beyond `horizon_s` make no difference. A loss costs the work since the last checkpoint. If
    `checkpoint_s` is zero, no work is lost.
    """

    rescale: Rescale
    horizon_s: float = 120.0
    checkpoint_s: float = 0.0

    def open_s(self, left_s: float) -> float:
        """The part of a node's remaining time that matters."""
        return left_s if left_s < self.horizon_s else math.inf
