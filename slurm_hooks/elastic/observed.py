"""The steps and checkpoints of a training, as seen from outside of its script, and the cost of an
interruption that follows from them.

Only values, and their form in the mailbox. Times are time.monotonic(), which all processes of a
node share.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.protocol.comment import MOST_LOSS_S, Loss

SIZE = 64  # bytes of a worker; an aligned write of this size is never seen by halves
_FORM = struct.Struct("<QQdddd")
_CHECK = struct.Struct("<I")
_NEWS = 1.5  # a cost that differs by this factor is worth reporting again
_LITTLE_S = 2.0  # a smaller difference does not count


@dataclass(frozen=True)
class Observed:
    """The observations of a worker since it began.

    It made `steps` of its optimizer, the newest at `stepped_at`. Each takes `step_s` seconds (0:
    unknown). It made `saves` of checkpoints, the newest begun at `saved_at`. `widest_s` is the
    largest age that a checkpoint reached lately before the next was there.
    """

    steps: int = 0
    saves: int = 0
    step_s: float = 0.0
    stepped_at: float = 0.0
    saved_at: float = 0.0
    widest_s: float = 0.0

    @property
    def age_s(self) -> float:
        """Seconds of training since the newest checkpoint was begun, 0 without a checkpoint."""
        return max(0.0, self.stepped_at - self.saved_at) if self.saves else 0.0


def pack(seen: Observed) -> bytes:
    """Return the bytes for the mailbox."""
    moments = (seen.step_s, seen.stepped_at, seen.saved_at, seen.widest_s)
    data = _FORM.pack(seen.steps, seen.saves, *moments)
    return (data + _CHECK.pack(zlib.crc32(data))).ljust(SIZE, b"\0")


def unpack(data: bytes) -> Optional[Observed]:
    """Return the observations in these bytes, or `None` if no worker wrote them."""
    if len(data) < SIZE or not any(data):
        return None
    (check,) = _CHECK.unpack_from(data, _FORM.size)
    if check != zlib.crc32(data[: _FORM.size]):
        return None
    seen = Observed(*_FORM.unpack_from(data))
    moments = (seen.step_s, seen.stepped_at, seen.saved_at, seen.widest_s)
    return seen if all(math.isfinite(moment) and moment >= 0 for moment in moments) else None


def cost_of_interruption(workers: Iterable[Observed], lag_s: float = math.inf) -> Optional[int]:
    """Return the seconds of work that the training repeats after an interruption.

    If a state is kept, these are the step under way and `lag_s`, by which the copy in memory is
    behind the last boundary at most. If no state is kept (infinite), it is the largest age of its
    checkpoints. It is `None` if no checkpoint was seen. Checkpoints that are written in other ways
    stay unseen.
    """
    seen = list(workers)
    if math.isfinite(lag_s):
        costs = [worker.step_s + lag_s for worker in seen] or [lag_s]
    else:
        costs = [max(worker.age_s, worker.widest_s) for worker in seen if worker.saves]
    return max(1, min(MOST_LOSS_S, math.ceil(max(costs)))) if costs else None


def is_news(reported: Optional[Loss], new: Loss) -> bool:
    """Tell whether it is worth reporting again."""
    if reported is None or reported.redoes is not new.redoes:
        return True
    less, more = sorted((reported.seconds + _LITTLE_S, new.seconds + _LITTLE_S))
    return more > _NEWS * less
