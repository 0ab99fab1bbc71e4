"""The last step boundary of a training, and the time in which there is none.

From the optimizer's part of a step until the script says that the step is reached, the state is
torn: it belongs to neither step. A lock covers that time, so whoever gets it finds a whole state
and, as long as it keeps it, one that does not change.

A device works behind the script: what the script has asked for may not have been done, and may
never be, because it waits for a process that is dead. So each boundary has an event of the
device, and so has the moment at which the next change begins; the state is that of the last
boundary that the device has come to, if it has not begun to change it meanwhile.

A script may change weights without an optimizer (averages that are swapped in for an evaluation).
Tensors count their changes, so a boundary whose parameters have changed since is torn. Not counted
are changes through `.data` and replays of a CUDA graph.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from slurm_hooks.elastic.script import device_events
from slurm_hooks.elastic.script.watched import Watched

DEVICE_S = 0.5  # to come to where the script is; if it has not by then, it may hang


@dataclass
class _Mark:
    step: int
    copied: dict[str, Any]
    versions: list[int]  # of the parameters
    done: Any  # event of the device: it has come here; None without one
    changes: Any = None  # the same, for the beginning of the next change
    has_moved: bool = False  # its parameters were changed before that

    def is_done(self) -> bool:
        return self.done is None or bool(self.done.query())

    def is_whole(self) -> bool:
        return self.changes is None or not self.changes.query()


class Boundary:
    """Of one process; `begin_change` and `reach` are called by the training, the others by
    whoever writes its state down."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._state = threading.Lock()
        self._gate = threading.Lock()
        self._marks: deque[_Mark] = deque()
        self._spare: list[dict[str, Any]] = []
        self._device: torch.device | None = None
        self.is_changing = False
        self.has_moved = False  # weights were changed in place, behind a boundary, at least once

    @property
    def step(self) -> int:
        """The last one that the script reached, -1 before the first."""
        return self._marks[-1].step if self._marks else -1

    def begin_change(self) -> None:
        """From now on the state is torn, until the next `reach`. Waits while it is frozen."""
        with self._gate:  # optimizers may step in several threads
            if self.is_changing:
                return
            self._state.acquire()
            self.is_changing = True
            if self._marks:
                self._marks[-1].changes = device_events.record()
                self._see_moved(self._marks[-1])

    def _see_moved(self, mark: _Mark) -> None:
        mark.has_moved = self._watched.versions() != mark.versions
        self.has_moved = self.has_moved or mark.has_moved

    def reach(self, step: int) -> None:
        """The state is whole again, and that of `step`."""
        self.begin_change()
        self._retire()
        copied = self._watched.copy(self._spare.pop() if self._spare else {})
        versions = self._watched.versions()
        self._marks.append(_Mark(step, copied, versions, device_events.record()))
        self._device = device_events.current()
        self.is_changing = False
        self._state.release()

    def _retire(self) -> None:
        """Forget boundaries before the one that the device has come to; without a device the
        state has left all of them."""
        while len(self._marks) > 1 and self._marks[1].is_done():
            self._spare.append(self._marks.popleft().copied)
        if self._marks and self._marks[0].done is None:
            self._spare.append(self._marks.popleft().copied)

    def freeze(self, patience_s: float) -> bool:
        """Stop the training where it would change its state; False if it is torn for so long."""
        return self._state.acquire(timeout=patience_s)

    def thaw(self) -> None:
        """Let it go on."""
        self._state.release()

    def content(self) -> dict[str, Any]:
        """The state now, right after `reach`, live."""
        return self._watched.content(self._marks[-1].copied)

    def await_device(self) -> None:
        """Until the device has come to the last boundary. For the training alone: a device may
        hang."""
        if self._marks and self._marks[-1].done is not None:
            self._marks[-1].done.synchronize()

    @contextmanager
    def whole(self) -> Iterator[tuple[int, dict[str, Any]] | None]:
        """The last boundary, frozen, as step and content; None if no step was reached. What is
        made of the content within is worth nothing if StateTorn is raised at the end."""
        mark = self._newest()
        self._check_moved(mark)
        with self.aside():
            yield (mark.step, self._watched.content(mark.copied)) if mark else None
        self._check_moved(mark)
        if mark and not mark.is_whole():
            raise StateTornError("the device changed it while it was copied")

    def _check_moved(self, mark: _Mark | None) -> None:
        if mark and mark is self._marks[-1] and not self.is_changing:
            self._see_moved(mark)
        if mark and mark.has_moved:
            raise StateTornError("its weights were changed in place, without changing() before")

    def _newest(self) -> _Mark | None:
        deadline = time.monotonic() + DEVICE_S
        while self._marks and not self._marks[-1].is_done() and time.monotonic() < deadline:
            time.sleep(0.005)
        return next((mark for mark in reversed(self._marks) if mark.is_done()), None)

    def aside(self) -> AbstractContextManager[Any]:
        """Copies from the device do not queue behind what may hang there."""
        return device_events.aside(self._device)


class StateTornError(Exception):
    """The state was changed while it was read, or before; says by whom."""
