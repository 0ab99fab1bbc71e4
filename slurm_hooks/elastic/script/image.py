"""An image of a checkpoint in memory, shared by processes or of this process alone.

A range of a shared image is mapped privately, so a page is copied only when it is written to.
Before its owner writes a newer image to the same place, the kernel copies the ranges that are still
in use here. An optimizer goes on with the very tensors that it gets, so they may be in use.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from slurm_hooks.elastic.script.packed import PAGE, Shape, unpack

POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14


class _Range(mmap.mmap):
    """An mmap that weak references can refer to."""


class Views:
    """The private ranges of one place in shared memory that are still in use."""

    def __init__(self) -> None:
        self._ranges: list[weakref.ref[_Range]] = []
        _ALL.add(self)

    def open(self, handle: int, start: int, size: int) -> mmap.mmap:
        """Return a private view. `start` is a multiple of PAGE."""
        range_ = _Range(handle, size, flags=mmap.MAP_PRIVATE, offset=start)
        self._ranges.append(weakref.ref(range_))
        return range_

    def detach(self) -> None:
        """Copy the ranges that are still in use into this process, so that later writes to the
        place are not seen there.
        """
        ranges = [range_ for ref in self._ranges if (range_ := ref()) is not None]
        for range_ in ranges:
            _copy_pages(range_)
        self._ranges = []


_ALL: weakref.WeakSet[Views] = weakref.WeakSet()


def _detach_all() -> None:
    for views in list(_ALL):
        views.detach()


os.register_at_fork(before=_detach_all)  # a child cannot be told when the place is written to


def _copy_pages(range_: mmap.mmap) -> None:
    """Copy each page, as a write to it would."""
    try:
        range_.madvise(POPULATE_WRITE)
    except OSError:  # an older kernel
        torch.frombuffer(range_, dtype=torch.uint8)[:: mmap.PAGESIZE].add_(0)


@dataclass(frozen=True)
class Image:
    """`whole` covers all of it, for reading. Tensors may stay on `view(start, size)`."""

    step: int
    shape: Shape
    whole: mmap.mmap
    view: Callable[[int, int], Any]

    def common(self) -> bytearray:
        """A copy of the small part."""
        return bytearray(memoryview(self.whole)[PAGE : PAGE + self.shape.common])

    def content(self) -> dict[str, Any]:
        """Return the kept content. Raises ValueError if this is no image."""
        return self.content_with(self.shape, self.common())

    def content_with(self, shape: Shape, common: bytearray) -> dict[str, Any]:
        """Return the content with the common part of another image, whose large tensors lie as
        here.
        """
        shift = self.shape.large_at - shape.large_at
        return unpack(shape, common, lambda start, size: self.view(start + shift, size))

    def peek(self) -> dict[str, Any]:
        """Return the content, valid until the next write to this place."""
        return unpack(self.shape, self.common(), self._place)

    def large(self) -> memoryview:
        """Return the bytes of all large tensors."""
        return self._place(self.shape.large_at, self.shape.total - self.shape.large_at)

    def _place(self, start: int, size: int) -> memoryview:
        return memoryview(self.whole)[start : start + size]


def own(step: int, shape: Shape) -> Image:
    """Return room for an image of this process alone. Raises OSError without memory."""
    whole = mmap.mmap(-1, shape.total)

    def view(start: int, size: int) -> memoryview:
        return memoryview(whole)[start : start + size]

    return Image(step, shape, whole, view)
