"""What is seen of a training from outside of its script: steps, and checkpoints, as numbers. And
what follows: how many seconds of work a node costs that is lost without notice.

Only values, and their form in the mailbox. Moments are time.monotonic(), which all processes of a
node share.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.words.comment import MOST_LOSS_S, Loss

SIZE = 64  # bytes of one worker; a write of so many, aligned, is never seen by halves
_FORM = struct.Struct("<QQdddd")
_CHECK = struct.Struct("<I")
_NEWS = 1.5  # so much more, or less, is worth telling again
_LITTLE_S = 2.0  # less than this is no difference


@dataclass(frozen=True)
class Observed:
    """Of one worker since it began: `steps` of its optimizer, the newest at `stepped_at`, each
    taking `step_s` seconds (0: unknown); `saves` of checkpoints, the newest begun at `saved_at`;
    `widest_s` is the largest age that a checkpoint reached lately before the next was there."""

    steps: int = 0
    saves: int = 0
    step_s: float = 0.0
    stepped_at: float = 0.0
    saved_at: float = 0.0
    widest_s: float = 0.0

    @property
    def age_s(self) -> float:
        """Seconds of training since the newest checkpoint was begun, 0 without one."""
        return max(0.0, self.stepped_at - self.saved_at) if self.saves else 0.0


def pack(seen: Observed) -> bytes:
    """As it lies in the mailbox."""
    moments = (seen.step_s, seen.stepped_at, seen.saved_at, seen.widest_s)
    data = _FORM.pack(seen.steps, seen.saves, *moments)
    return (data + _CHECK.pack(zlib.crc32(data))).ljust(SIZE, b"\0")


def unpack(data: bytes) -> Optional[Observed]:
    """What a worker has written; None if it has not, or it is nothing of ours."""
    if len(data) < SIZE or not any(data):
        return None
    (check,) = _CHECK.unpack_from(data, _FORM.size)
    if check != zlib.crc32(data[: _FORM.size]):
        return None
    seen = Observed(*_FORM.unpack_from(data))
    moments = (seen.step_s, seen.stepped_at, seen.saved_at, seen.widest_s)
    return seen if all(math.isfinite(moment) and moment >= 0 for moment in moments) else None


def cost_of_interruption(workers: Iterable[Observed], lag_s: float = math.inf) -> Optional[int]:
    """Seconds of its work that the training does again after a hit: the step under way and
    `lag_s` if what is kept in memory is behind the last boundary by no more than that. If nothing
    is kept (infinite), the largest age of its checkpoints; None if no checkpoint was seen, which
    says nothing of those that are written in other ways."""
    seen = list(workers)
    if math.isfinite(lag_s):
        costs = [one.step_s + lag_s for one in seen] or [lag_s]
    else:
        costs = [max(one.age_s, one.widest_s) for one in seen if one.saves]
    return max(1, min(MOST_LOSS_S, math.ceil(max(costs)))) if costs else None


def is_news(told: Optional[Loss], found: Loss) -> bool:
    """Whether it is worth telling again."""
    if told is None or told.redoes is not found.redoes:
        return True
    less, more = sorted((told.seconds + _LITTLE_S, found.seconds + _LITTLE_S))
    return more > _NEWS * less
