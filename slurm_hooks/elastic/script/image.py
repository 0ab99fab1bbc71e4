"""An image of a checkpoint in memory that processes share or that is this one's own.

A range of a shared image is mapped privately: nothing is copied until somebody writes to it, and
before its owner writes a newer image to the same place, the kernel copies what is still in use
here. (Optimizers go on with the very tensors they are given, so it may be.)
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
    """Can be referred to weakly."""


class Views:
    """The private ranges of one place in shared memory that are still in use."""

    def __init__(self) -> None:
        self._ranges: list[weakref.ref[_Range]] = []
        _ALL.add(self)

    def open(self, handle: int, start: int, size: int) -> mmap.mmap:
        """A private view; `start` is a multiple of PAGE."""
        found = _Range(handle, size, flags=mmap.MAP_PRIVATE, offset=start)
        self._ranges.append(weakref.ref(found))
        return found

    def detach(self) -> None:
        """Make what is still in use this process's own: what is written to the place from now
        on is not seen there."""
        ranges = [found for ref in self._ranges if (found := ref()) is not None]
        for found in ranges:
            _copy_pages(found)
        self._ranges = []


_ALL: weakref.WeakSet[Views] = weakref.WeakSet()


def _detach_all() -> None:
    for views in list(_ALL):
        views.detach()


os.register_at_fork(before=_detach_all)  # a child cannot be told when the place is written to


def _copy_pages(range_: mmap.mmap) -> None:
    """As if somebody wrote to each of them."""
    try:
        range_.madvise(POPULATE_WRITE)
    except OSError:  # an older kernel
        torch.frombuffer(range_, dtype=torch.uint8)[:: mmap.PAGESIZE].add_(0)


@dataclass(frozen=True)
class Image:
    """`whole` covers all of it, for reading; `view(start, size)` is what tensors may stay on."""

    step: int
    shape: Shape
    whole: mmap.mmap
    view: Callable[[int, int], Any]

    def common(self) -> bytearray:
        """A copy of the small part."""
        return bytearray(memoryview(self.whole)[PAGE : PAGE + self.shape.common])

    def content(self) -> dict[str, Any]:
        """What was kept. Raises ValueError for what is not an image."""
        return self.content_with(self.shape, self.common())

    def content_with(self, shape: Shape, common: bytearray) -> dict[str, Any]:
        """The same with the common part of another image, whose large tensors lie as here."""
        shift = self.shape.large_at - shape.large_at
        return unpack(shape, common, lambda start, size: self.view(start + shift, size))

    def peek(self) -> dict[str, Any]:
        """The same, for as long as nobody writes to this place."""
        return unpack(self.shape, self.common(), self._place)

    def large(self) -> memoryview:
        """The bytes of all large tensors."""
        return self._place(self.shape.large_at, self.shape.total - self.shape.large_at)

    def _place(self, start: int, size: int) -> memoryview:
        return memoryview(self.whole)[start : start + size]


def own(step: int, shape: Shape) -> Image:
    """Room for an image of this process alone. Raises OSError if there is none."""
    whole = mmap.mmap(-1, shape.total)

    def view(start: int, size: int) -> memoryview:
        return memoryview(whole)[start : start + size]

    return Image(step, shape, whole, view)
