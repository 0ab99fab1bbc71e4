"""The last step boundary of a training, and the time between boundaries.

From the optimizer's part of a step until the script says that the step is reached, the state is
torn: it belongs to neither step. A lock covers that time. A thread that holds the lock finds a
whole state, which does not change until it lets go.

A device works behind the script: it may not have done the requested work yet. It never will if it
waits for a dead process. So each boundary has an event of the device, and so has the moment at
which the next change begins. The kept state is the last boundary that the device has reached, if it
has not begun to change that state since.

A script may change weights without an optimizer, as with averages that are swapped in for an
evaluation. Tensors count their changes, so a boundary whose parameters have changed since is torn.
Changes through `.data` and replays of a CUDA graph are not counted.
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

DEVICE_S = 0.5  # for the device to reach the script's boundary; after that it may hang


@dataclass
class _Mark:
    step: int
    copied: dict[str, Any]
    versions: list[int]  # of the parameters
    done: Any  # event of the device: it has reached this boundary; None without a device
    changes: Any = None  # event of the device: it has begun the next change
    has_moved: bool = False  # its parameters were changed before the next change began

    def is_done(self) -> bool:
        return self.done is None or bool(self.done.query())

    def is_whole(self) -> bool:
        return self.changes is None or not self.changes.query()


class Boundary:
    """The boundary of a process. The training calls `begin_change` and `reach`. The code that saves
    its state calls the others.
    """

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
        """The last step that the script reached, -1 before the first."""
        return self._marks[-1].step if self._marks else -1

    def begin_change(self) -> None:
        """Mark the state as torn from now on, until the next `reach`. Waits while it is frozen."""
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
        """Mark the state as whole again, and as the state of `step`."""
        self.begin_change()
        self._retire()
        copied = self._watched.copy(self._spare.pop() if self._spare else {})
        versions = self._watched.versions()
        self._marks.append(_Mark(step, copied, versions, device_events.record()))
        self._device = device_events.current()
        self.is_changing = False
        self._state.release()

    def _retire(self) -> None:
        """Forget boundaries before the boundary that the device has reached. Without a device the
        state has left all of them.
        """
        while len(self._marks) > 1 and self._marks[1].is_done():
            self._spare.append(self._marks.popleft().copied)
        if self._marks and self._marks[0].done is None:
            self._spare.append(self._marks.popleft().copied)

    def freeze(self, patience_s: float) -> bool:
        """Stop the training before it changes its state. Return False if the state stays torn for
        so long.
        """
        return self._state.acquire(timeout=patience_s)

    def thaw(self) -> None:
        """Let the training go on."""
        self._state.release()

    def content(self) -> dict[str, Any]:
        """Return the present state, right after `reach`, live."""
        return self._watched.content(self._marks[-1].copied)

    def await_device(self) -> None:
        """Wait until the device has reached the last boundary. For the training alone, since a
        device may hang.
        """
        if self._marks and self._marks[-1].done is not None:
            self._marks[-1].done.synchronize()

    @contextmanager
    def whole(self) -> Iterator[tuple[int, dict[str, Any]] | None]:
        """Freeze the last boundary, as step and content, or `None` before the first step.

        If StateTorn is raised at the end, results from the content are worthless.
        """
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
        """Copy from the device without queueing behind its other work, which may hang."""
        return device_events.aside(self._device)


class StateTornError(Exception):
    """The state was changed while it was read, or before. The message gives the cause."""
