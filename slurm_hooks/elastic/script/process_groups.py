"""A training that has ended must not hang while it is tidied away.

A module of DistributedDataParallel that lives longer than destroy_process_group(), as a local
variable of main() does, is the last owner of its group: its reducer, in C++. Torch frees that under
the interpreter's lock and waits there for Gloo's threads, which may want the lock to free a tensor:
a deadlock (pytorch/pytorch#56297, seen with torch 2.13). Where Python is the last owner, torch lets
go of the lock first.
"""

from __future__ import annotations

import weakref
from typing import Any


def outlive_reducer(module: Any) -> None:
    """Have Python own the group of this module a moment longer than its reducer does. Raises
    AttributeError or TypeError where torch is not as expected."""
    _Owner(module.process_group, module.reducer, module.logger)


class _Owner:
    """Of a group, until the others are gone: the logger owns the reducer too."""

    def __init__(self, group: Any, *others: Any) -> None:
        self._group = group
        self._left = len(others)
        for other in others:  # called when C++ has freed it
            weakref.finalize(other, self._see_one_go).atexit = False

    def _see_one_go(self) -> None:
        self._left -= 1
        if not self._left:
            self._group = None
