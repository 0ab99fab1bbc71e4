"""Prevent a hang of a finished training while torch cleans up.

A module of DistributedDataParallel may live longer than destroy_process_group(), as a local
variable of main() does. Then its reducer, in C++, is the last owner of its group. torch frees the
group under the interpreter's lock and waits there for Gloo's threads. These may want the lock to
free a tensor: a deadlock (pytorch/pytorch#56297, seen with torch 2.13). If Python is the last
owner, torch releases the lock first.
"""

from __future__ import annotations

import weakref
from typing import Any


def outlive_reducer(module: Any) -> None:
    """Make Python own the group of this module a moment longer than its reducer does. Raises
    AttributeError or TypeError if torch is not as expected.
    """
    _Owner(module.process_group, module.reducer, module.logger)


class _Owner:
    """Owns a group until the others are gone: the logger owns the reducer too."""

    def __init__(self, group: Any, *others: Any) -> None:
        self._group = group
        self._left = len(others)
        for other in others:  # called when C++ has freed it
            weakref.finalize(other, self._note_end).atexit = False

    def _note_end(self) -> None:
        self._left -= 1
        if not self._left:
            self._group = None
