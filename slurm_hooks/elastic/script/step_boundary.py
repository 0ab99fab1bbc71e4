"""`notice()`: whether a change of size is coming, asked by a script at a step boundary.

All processes get the same answer in the same step, because they agree on it (agreement.py). A
process that saved alone would wait for the others without end. No signal handler is involved: a
checkpoint written in a handler would be torn.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist

from slurm_hooks.elastic.mailbox import MailboxReader, PlannedChange
from slurm_hooks.elastic.script import observation
from slurm_hooks.elastic.script.agreement import Agreement
from slurm_hooks.elastic.script.file_writer import await_files

STALL_S = 10.0
NEWS_S = 3.0  # agents learn of a change one after another
_LOOK_S = 0.05
_CAUSES = ("", "grow", "leave")


@dataclass(frozen=True)
class Coming:
    """A planned change: `why` is "grow" or "leave", `left_s` the seconds until the workers are
    stopped in any case.
    """

    why: str
    left_s: float

    def ready(self) -> None:
        """Say that the state is saved, and wait to be stopped, so that no step is done twice.

        The file is written first. SIGTERM ends the process here, whatever the script's handler does
        elsewhere. Returns only if the change is called off.
        """
        await_files(self.left_s)
        reader = _reader()
        with _default_sigterm():
            reader.allow_stop()
            await_stop(reader)
        reader.listen()


def is_asked() -> bool:
    """Tell whether this script calls `notice()`."""
    return bool(_reader.cache_info().currsize)


def await_stop(reader: MailboxReader) -> None:
    """Wait to be stopped. Return when the change is called off, or if this node's agent never
    learns of it.
    """
    begun_at, has_come, waited_s = time.monotonic(), False, 0.0
    while waited_s < STALL_S:
        is_coming = reader.read() is not None
        has_come = has_come or is_coming
        if not is_coming and (has_come or waited_s > NEWS_S):
            return
        time.sleep(_LOOK_S)
        waited_s = time.monotonic() - begun_at


@contextmanager
def _default_sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield  # not ours to change
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def notice() -> Coming | None:
    """Return the planned change, or `None`. Call it in all processes after the same step.

    A process that has called it once is not stopped for a planned change until it is in `ready()`
    (ten seconds at most).
    """
    _reader()  # a script that asks is noted at once
    observation.see_call("notice")
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        cause, left_s = _agreement().ask(_seen, time.monotonic()) or (0.0, 0.0)
    else:
        cause, left_s = _seen()
    return Coming(_CAUSES[int(cause)], left_s) if cause else None


def _seen() -> list[float]:
    """Return this process's news, as numbers."""
    change = _reader().read() or PlannedChange("", 0.0)
    return [float(_CAUSES.index(change.why) if change.why in _CAUSES else 0), change.left_s]


def _agreement() -> Agreement:
    """Return the agreement of the default group. The next group begins with a new agreement."""
    return _agreements.setdefault(dist.group.WORLD, Agreement())


_agreements: WeakKeyDictionary[Any, Agreement] = WeakKeyDictionary()


@cache
def _reader() -> MailboxReader:
    reader = MailboxReader(os.environ)
    reader.listen()
    return reader
