"""The stop of a watched training between two steps, when a change of size is planned.

A process that is stopped inside of a step does that step again. It may lose more: while it changes
its state, as between the steps of two optimizers, it has no state to keep. So each process waits at
a boundary to be stopped, and all at the same boundary.

`notice()` agrees by a reduction a few times a second, since a script that asks will save with
others. Here no process does anything for another. So the processes agree in the store of the round,
and only when a change is planned. A process that does not take part costs the agents their
patience. It cannot hang the training.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined,unused-ignore]

from slurm_hooks.elastic.log import suppressed
from slurm_hooks.elastic.mailbox import MailboxReader
from slurm_hooks.elastic.script.step_boundary import await_stop, is_asked

_STORE_S = 5.0
_HEARD, _PLACE = "malleable/heard", "malleable/place"


class PlannedStop:
    """`keep` is called before this process waits for its end. Calls do not raise."""

    def __init__(self, keep: Callable[[], None]) -> None:
        self._keep = keep
        self._reader = MailboxReader(os.environ)
        self._has_begun = self._has_heard = False
        self._place: _Place | None = None

    def pause(self, step: int) -> None:
        """This process is at the boundary after `step` steps. Wait if all of them stop here.

        Without news it costs a look at the mailbox. It does not act in a script that calls
        `notice()`, which says itself when it is ready.
        """
        if is_asked():
            return
        if not self._has_begun:
            self._has_begun = True
            self._reader.listen()
        if self._reader.read() is None:
            self._forget_news()
        elif self._is_here(step):
            self._keep()
            self._reader.allow_stop()
            await_stop(self._reader)
            self._reader.listen()
            self._forget_news()

    def end(self) -> None:
        """No further boundary will come."""
        if self._has_begun and not is_asked():
            self._reader.be_silent()

    def _is_here(self, step: int) -> bool:
        """Without the store this is nowhere: the process is stopped at any moment."""
        errors = RuntimeError, ValueError, KeyError
        with suppressed(*errors, doing="agreeing where to stop"):
            if not self._has_heard:
                self._has_heard = True
                self._place = _Place(step)
            return self._place is not None and self._place.is_here(step)
        self._place = None
        return False

    def _forget_news(self) -> None:
        if self._place is not None:
            with suppressed(RuntimeError, doing="withdrawing from a stop"):
                self._place.withdraw()
        self._place, self._has_heard = None, False


class _Place:
    """The boundary at which the processes stop: the next after the last process has heard.

    No process can be past it, because each step needs all processes. Raises RuntimeError if the
    store is gone.
    """

    def __init__(self, step: int) -> None:
        self._heard_at = step
        world = int(os.environ.get("WORLD_SIZE", "1"))
        self._store = _round_store() if world > 1 else None
        if self._store is not None and self._store.add(_HEARD, 1) >= world:
            self._store.set(_PLACE, str(step + 1))

    def is_here(self, step: int) -> bool:
        """A place up to where this process heard belongs to an earlier change."""
        return self._store is None or self._heard_at < self._store.add(_PLACE, 0) <= step

    def withdraw(self) -> None:
        if self._store is not None:
            self._store.add(_HEARD, -1)


def _round_store() -> TCPStore:
    return TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=_STORE_S),
    )
