"""The newest checkpoint of a node, in memory: two slots, written in turn, so that whoever
is killed while writing leaves the other whole. Bytes only.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress

from slurm_hooks.elastic.log import suppressed
from slurm_hooks.elastic.mailbox import SLOTS, open_files

_HEAD = struct.Struct("<8sqqI")
_MAGIC = b"mallmem1"


class NodeMemory:
    """Kept by the agent, written by the first worker of the node. Methods do not raise:
    what cannot be kept in memory is read from the file."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._slots: list[int] = []
        with suppressed(OSError, ValueError, doing="opening the memory of the agent"):
            self._slots = open_files(env.get(SLOTS, ""))

    @property
    def is_there(self) -> bool:
        """Whether an agent lends its memory."""
        return bool(self._slots)

    def newest(self) -> int:
        """The step of the newest whole copy, -1 if there is none."""
        return max((step for step, _ in self._heads()), default=-1)

    def write(self, step: int, data: bytes) -> bool:
        """Replace the older copy; False if there is no room, which leaves the newer one."""
        if not self._slots:
            return False
        slot = -1
        with suppressed(OSError, doing=f"keeping step {step} in memory"):
            slot = min(self._slots, key=lambda handle: _head(handle)[0])
            os.ftruncate(slot, 0)  # the header is gone before anything is written
            view, at = memoryview(data), _HEAD.size
            while view:
                done = os.pwrite(slot, view, at)
                view, at = view[done:], at + done
            os.pwrite(slot, _HEAD.pack(_MAGIC, step, len(data), zlib.crc32(data)), 0)
            return True
        with suppressed(OSError, doing="giving back memory"):
            os.ftruncate(slot, 0)
        return False

    def read(self, step: int) -> bytes | None:
        """The copy of this step, if it is here and whole."""
        for found, slot in self._heads():
            if found == step:
                return _body(slot)
        return None

    def _heads(self) -> list[tuple[int, int]]:
        return [(step, slot) for slot in self._slots if (step := _head(slot)[0]) >= 0]


def _head(slot: int) -> tuple[int, int, int]:
    with suppressed(OSError, doing="reading a checkpoint"), suppress(struct.error):
        magic, step, size, check = _HEAD.unpack(os.pread(slot, _HEAD.size, 0))
        if magic == _MAGIC and size == os.fstat(slot).st_size - _HEAD.size:
            return step, size, check
    return -1, 0, 0


def _body(slot: int) -> bytes | None:
    _, size, check = _head(slot)
    data = b""
    with suppressed(OSError, doing="reading a checkpoint"), open(os.dup(slot), "rb") as file:
        file.seek(_HEAD.size)
        data = file.read(size)
    return data if len(data) == size and zlib.crc32(data) == check else None
