"""How long the training has paused: from the last step before a change to the first one after it,
and from the start of the fragment to the first step of all.

A step is known to the second: workers tell their agent once in one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from slurm_hooks.elastic.batch.progress_entry import ToldPauses
from slurm_hooks.elastic.rendezvous.causes import Cause, CauseKind
from slurm_hooks.elastic.speed import Speed

MOST_S = 9999.0  # longer is something else: a queue, a night
_STARTED = "SLURM_JOB_START_TIME"  # unix seconds, where Slurm says so


class PauseWatch:
    """`pauses` are those seen so far, the newest of each kind. `began` is when the fragment did,
    as all moments in time.monotonic()."""

    def __init__(self, began: float) -> None:
        self.pauses = ToldPauses()
        self._began = began
        self._last = 0.0
        self._kind = ""  # of the pause that has not ended yet

    def begin_round(self, causes: Iterable[Cause], stepped_at: float, is_first: bool) -> None:
        """A new round, the last step before it at `stepped_at` (0: there was none, so that what
        came before is a part of the same pause)."""
        kind = kind_of(causes, is_first)
        goes_on = bool(self._kind) and not stepped_at
        if goes_on and kind != self._kind:
            kind = self._kind if self._kind == "start_s" else ""
        self._last = stepped_at or self._last
        is_known = bool(self._last) or kind == "start_s"
        self._kind = kind if is_known else ""  # nobody saw a step before it

    def see(self, speeds: Iterable[Speed]) -> None:
        """What the workers of this round tell."""
        first_at = max((speed.first_at for speed in speeds), default=0.0)
        if not self._kind or not first_at:
            return
        seconds = first_at - (self._began if self._kind == "start_s" else self._last)
        if 0.0 <= seconds <= MOST_S:
            self.pauses = replace(self.pauses, **{self._kind: seconds})
        self._kind = ""


def kind_of(causes: Iterable[Cause], is_first: bool) -> str:
    """Which of the fields of ToldPauses, empty if it is none of them."""
    kinds = {cause.kind for cause in causes}
    if is_first:
        return "start_s" if kinds == {CauseKind.START} else ""
    if CauseKind.LOST in kinds:
        return "loss_s"
    only = {CauseKind.JOINED: "grow_s", CauseKind.LEFT: "shrink_s"}
    return only.get(kinds.pop(), "") if len(kinds) == 1 else ""


def fragment_began(env: Mapping[str, str]) -> float:
    """When Slurm started the fragment, else now."""
    text, now = env.get(_STARTED, ""), time.monotonic()
    is_count = text.isascii() and text.isdigit() and len(text) < 12
    ago_s = time.time() - int(text) if is_count else 0.0
    return now - ago_s if 0.0 <= ago_s <= MOST_S else now
