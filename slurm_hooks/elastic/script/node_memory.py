"""The newest checkpoint of a node, in memory: two slots, written in turn, so that a process that is
killed while it writes leaves the other whole.

A slot is a memory file of the agent that every worker of the node maps. Its first page describes
the content and is written last. Before that comes an image (packed.py), copied from the live
tensors. A slot keeps its pages for the next image and never shrinks.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
import weakref
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from slurm_hooks.elastic.log import suppressed
from slurm_hooks.elastic.mailbox import ALL_STEPS, SLOTS, find_files
from slurm_hooks.elastic.script.image import POPULATE_WRITE, Image, Views, own
from slurm_hooks.elastic.script.memory_room import room
from slurm_hooks.elastic.script.packed import PAGE, Packing, Shape

_MAGIC = b"mallmem2"  # versions with different words here see an empty slot
_BEGUN = b"mallhalf"  # a copy was begun; if a later process finds this, it was cut off
_HEAD = struct.Struct("<8sqqqqqI")  # magic, step, Shape, crc32 of the common part
_PIECE = 4 << 20  # bytes made ready at a time: madvise() of Python lets no other thread run


class NodeMemory:
    """Kept by the agent, written by the first worker of the node. A state that does not fit into
    memory is read from the file.

    `steps`: the steps of this training. Copies of another training are left for that training.
    """

    def __init__(self, env: Mapping[str, str], steps: range = ALL_STEPS) -> None:
        self._slots: list[_Slot] = []
        self._steps = steps
        self._writing = threading.RLock()
        with suppressed(OSError, ValueError, doing="opening the memory of the agent"):
            self._slots = [_Slot(handle) for handle in find_files(env, SLOTS)]

    @property
    def is_there(self) -> bool:
        """True if an agent lends its memory."""
        return bool(self._slots)

    def newest(self) -> int:
        """Return the step of the newest whole copy of this training, or -1."""
        steps = (slot.step() for slot in self._slots)
        return max((step for step in steps if step in self._steps), default=-1)

    def write(self, step: int, content: dict[str, Any]) -> Image | None:
        """Replace the older copy. Return `None` without room, which leaves both.

        Raises TypeError, which names the key, for a value that cannot be kept. The newer copy stays
        then.
        """
        with self.draft() as draft:
            return draft.commit() if draft.fill(step, content) else None

    def adopt(self, step: int, content: dict[str, Any]) -> Image | None:
        """As write, for a state from a file: the training will need as much memory again."""
        with self.draft() as draft:
            packing = Packing(content)
            whole = draft.allocate(step, packing.shape)
            if whole is None:
                return None
            packing.copy_into(whole)
            return draft.commit()

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """Begin a copy that counts only after its commit. One thread at a time."""
        with self._writing:
            free = [slot for slot in self._slots if not slot.is_read]
            draft = Draft(min(free, key=_Slot.step, default=None), self._slots)
            try:
                yield draft
            finally:
                draft.give_up()

    def make_ready(self, size: int) -> None:
        """Get the pages for an image of this size now, since that takes most of the time of a first
        copy. Does not raise.

        It leaves room for a training that needs as much again. Other threads may write at the same
        time.
        """
        for slot in self._slots:
            with suppressed(OSError, ValueError, doing="getting memory for a copy"):
                for _ in slot.make_ready(size, self._writing):
                    time.sleep(0)

    def take_cut_off(self) -> int:
        """Return the step of a copy that was cut off with its process, or -1. Each is returned
        once.
        """
        steps = [slot.take_cut_off() for slot in self._slots]
        return max((step for step in steps if step in self._steps), default=-1)

    def read(self, step: int) -> Image | None:
        """Return the copy of this step, if it is here and whole."""
        images = (slot.image() for slot in self._slots if slot.step() == step)
        return next((image for image in images if image is not None), None)

    def forget(self, steps: range) -> None:
        """Drop copies of these steps."""
        for slot in self._slots:
            if slot.step() in steps:
                slot.clear()

    def detach(self) -> None:
        """Copy into this process what was read here, since another process may write from now
        on.
        """
        for slot in self._slots:
            slot.views.detach()

    @contextmanager
    def reading(self, image: Image) -> Iterator[None]:
        """Within, the slot of this image is not written to. The other slot is."""
        slot = next((slot for slot in self._slots if slot.is_at(image)), None)
        if slot is not None:
            slot.is_read = True
        try:
            yield
        finally:
            if slot is not None:
                slot.is_read = False


class _Slot:
    def __init__(self, handle: int) -> None:
        self._handle = handle
        weakref.finalize(self, os.close, handle).atexit = False
        self._whole: mmap.mmap | None = None
        self._ready = 0  # bytes of it whose pages this process has already
        self.views = Views()
        self.is_read = False

    def step(self) -> int:
        head = self._head()
        return head[0] if head else -1

    def image(self) -> Image | None:
        head = self._head()
        if head is None:
            return None
        step, shape, check = head
        with suppressed(OSError, ValueError, doing="reading a checkpoint"):
            image = Image(step, shape, self._mapped(shape.total), self._view)
            return image if _check(image) == check else None
        return None

    def is_at(self, image: Image) -> bool:
        return self._whole is image.whole

    def prepare(self, shape: Shape, spare: int) -> mmap.mmap:
        """Return room for an image, with `spare` bytes left to others. Until then the old image
        stays. Raises OSError without room.
        """
        missing = shape.total - os.fstat(self._handle).st_size
        if missing > 0:
            if missing + spare > room():
                raise OSError(f"{missing + spare >> 20} MiB more are not free")
            os.posix_fallocate(self._handle, 0, shape.total)
        whole = self._mapped(shape.total)
        if self._ready < shape.total:
            with suppress(OSError):  # an older kernel: the copy does it page by page
                whole.madvise(POPULATE_WRITE)
                self._ready = len(whole)
        self.views.detach()
        return whole

    def make_ready(self, size: int, turn: threading.RLock) -> Iterator[None]:
        """Make room for an image, one piece for each step of this iterator. Present data stays
        untouched. Raises OSError if there is too little.
        """
        there = os.fstat(self._handle).st_size
        if size > there and size - there + size > room():
            return
        for at in range(there, size, _PIECE):
            with turn:
                os.posix_fallocate(self._handle, at, min(_PIECE, size - at))
            yield
        with turn:
            whole = self._mapped(size)
        for at in range(0, size, _PIECE):
            whole.madvise(POPULATE_WRITE, at, min(_PIECE, size - at))
            yield
        with turn:
            self._ready = max(self._ready, size if whole is self._whole else 0)

    def begin(self, step: int) -> None:
        """Mark the slot as empty from now on, with a copy of this step on its way."""
        os.pwrite(self._handle, _HEAD.pack(_BEGUN, step, 0, 0, 0, 0, 0), 0)

    def take_cut_off(self) -> int:
        doing = "looking for a copy that was cut off"
        with suppressed(OSError, doing=doing), suppress(struct.error):
            magic, step, *_ = _HEAD.unpack(os.pread(self._handle, _HEAD.size, 0))
            if magic == _BEGUN:
                self.clear()
                return int(step)
        return -1

    def clear(self) -> None:
        os.pwrite(self._handle, bytes(_HEAD.size), 0)

    def commit(self, step: int, shape: Shape) -> Image:
        image = Image(step, shape, self._mapped(shape.total), self._view)
        sizes = shape.skeleton, shape.common, shape.total, shape.layout
        head = _HEAD.pack(_MAGIC, step, *sizes, _check(image))
        os.pwrite(self._handle, head[len(_MAGIC) :], len(_MAGIC))
        os.pwrite(self._handle, _MAGIC, 0)
        return image

    def _head(self) -> tuple[int, Shape, int] | None:
        with suppressed(OSError, doing="reading a checkpoint"), suppress(struct.error):
            magic, step, *sizes, check = _HEAD.unpack(os.pread(self._handle, _HEAD.size, 0))
            shape = Shape(*sizes)
            is_whole = magic == _MAGIC and shape.is_sound()
            if is_whole and shape.total <= os.fstat(self._handle).st_size:
                return step, shape, check
        return None

    def _mapped(self, size: int) -> mmap.mmap:
        if self._whole is None or len(self._whole) < size:
            self._whole, self._ready = mmap.mmap(self._handle, size), 0
        return self._whole

    def _view(self, start: int, size: int) -> mmap.mmap:
        return self.views.open(self._handle, start, size)


class Draft:
    """A copy that does not count yet."""

    def __init__(self, slot: _Slot | None, slots: list[_Slot]) -> None:
        self._slot = slot
        self._others = [other for other in slots if other is not slot]
        self._filled: tuple[int, Shape] | None = None

    def fill(self, step: int, content: dict[str, Any]) -> bool:
        """Copy the live content. Return False without room. Raises as NodeMemory.write."""
        packing = Packing(content)
        whole = self._prepare(step, packing.shape, 0)
        if whole is None:
            return False
        packing.copy_into(whole)
        return True

    def allocate(self, step: int, shape: Shape) -> mmap.mmap | None:
        """Return room for an image with which a training begins, or `None`.

        The training has no state of its own yet. A copy that fits now may make it run out of memory
        a moment later, so as much room is left again.
        """
        return self._prepare(step, shape, shape.total)

    def _prepare(self, step: int, shape: Shape, spare: int) -> mmap.mmap | None:
        if self._slot is None:
            return None
        with suppressed(OSError, ValueError, doing=f"keeping step {step} in memory"):
            whole = self._slot.prepare(shape, spare)
            self._slot.begin(step)
            self._filled = step, shape
            return whole
        return None

    def commit(self) -> Image:
        """Make the copy count from now on."""
        assert self._slot is not None
        assert self._filled is not None
        image = self._slot.commit(*self._filled)
        self._filled = None
        for other in self._others:  # the same step, saved before
            if other.step() == image.step:
                other.clear()
        return image

    def give_up(self) -> None:
        """Leave the slot empty, unless the copy was committed. It does not count as cut off."""
        if self._slot is not None and self._filled is not None:
            with suppressed(OSError, doing="giving up a copy"):
                self._slot.clear()


def _check(image: Image) -> int:
    return zlib.crc32(memoryview(image.whole)[PAGE : PAGE + image.shape.common])


def packed(step: int, content: dict[str, Any]) -> Image:
    """Return an image of this process alone. Raises OSError without memory, and TypeError as
    NodeMemory.write.
    """
    packing = Packing(content)
    if packing.shape.total > room():
        raise OSError(f"{packing.shape.total >> 20} MiB of memory are not free")
    image = own(step, packing.shape)
    packing.copy_into(image.whole)
    return image
