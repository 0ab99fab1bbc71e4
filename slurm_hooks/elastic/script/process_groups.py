"""A training that has ended must not hang while it is tidied away.

A module of DistributedDataParallel that lives longer than destroy_process_group(), as a local
variable of main() does, is the last owner of its group. Torch frees that under the interpreter's
lock and waits there for Gloo's threads, which may want the lock to free a tensor: a deadlock
(pytorch/pytorch#56297, seen with torch 2.13). Where Python owns the group, torch lets go of the
lock first.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import weakref
from typing import Any

_kept: list[tuple[weakref.ref[Any], Any]] = []


def outlive(module: Any) -> None:
    """Keep the group of this module until the module is gone and another one has come, or the
    process exits. Raises AttributeError for a module without one."""
    if not _kept:
        atexit.register(_kept.clear)  # runs before the interpreter refuses its lock to threads
        os.register_at_fork(after_in_child=_keep_for_good)
    _kept[:] = [(owner, group) for owner, group in _kept if owner() is not None]
    _kept.append((weakref.ref(module), module.process_group))


def _keep_for_good() -> None:
    """In a child of fork(): to free a group waits for threads, which the child has not."""
    atexit.unregister(_kept.clear)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept))
