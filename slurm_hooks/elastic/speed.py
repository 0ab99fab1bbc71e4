"""How fast a worker trains, in clean time only, and its form in the mailbox.

Only values. Times are time.monotonic(), which all processes of a node share.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import astuple, dataclass
from typing import Optional

SIZE = 64  # bytes of a worker; an aligned write of this size is never seen by halves
_FORM = struct.Struct("<ddddddd")
_CHECK = struct.Struct("<I")


@dataclass(frozen=True)
class Speed:
    """The speed of a worker since it began.

    * `first_at`: when its first step ended (0: no step yet).
    * `seconds`: clean time, without warm-up and pauses. In it the worker made
      `steps` of its optimizer on `samples` drawn from its DataLoaders (0: unknown).
    * `reported`: samples in a step of all processes together, by its `report()` (0: no report).
    * `times`: how many times as many processes there are in all as on this node (0: unknown).
    * `sync`: the share of a step that waits for other processes (negative: unknown).
    """

    first_at: float = 0.0
    seconds: float = 0.0
    steps: float = 0.0
    samples: float = 0.0
    reported: float = 0.0
    times: float = 0.0
    sync: float = -1.0


def pack(speed: Speed) -> bytes:
    """Return the bytes for the mailbox."""
    data = _FORM.pack(*astuple(speed))
    return (data + _CHECK.pack(zlib.crc32(data))).ljust(SIZE, b"\0")


def unpack(data: bytes) -> Optional[Speed]:
    """Return the speed in these bytes, or `None` if no worker wrote them."""
    if len(data) < SIZE or not any(data):
        return None
    (check,) = _CHECK.unpack_from(data, _FORM.size)
    if check != zlib.crc32(data[: _FORM.size]):
        return None
    speed = Speed(*_FORM.unpack_from(data))
    is_sane = all(map(math.isfinite, astuple(speed))) and min(astuple(speed)[:-1]) >= 0
    return speed if is_sane and -1.0 <= speed.sync <= 1.0 else None
