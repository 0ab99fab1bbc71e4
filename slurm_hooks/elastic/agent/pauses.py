"""Measure how long the training pauses.

A pause lasts from the last step before a change to the first step after it. The first pause lasts
from the start of the fragment to its first step. A step is known to the second: workers report to
their agent once a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from slurm_hooks.elastic.batch.progress_entry import ToldPauses
from slurm_hooks.elastic.rendezvous.causes import Cause, CauseKind
from slurm_hooks.elastic.speed import Speed

MOST_S = 9999.0  # a longer pause has another cause: a queue, a night
_STARTED = "SLURM_JOB_START_TIME"  # unix seconds, where Slurm says so


class PauseWatch:
    """`pauses` are the pauses seen so far, the newest of each kind.

    `began` is when the fragment began. All times are time.monotonic().
    """

    def __init__(self, began: float) -> None:
        self.pauses = ToldPauses()
        self._began = began
        self._last = 0.0
        self._kind = ""  # of the pause that has not ended yet

    def begin_round(self, causes: Iterable[Cause], stepped_at: float, is_first: bool) -> None:
        """A new round begins. The last step before it was at `stepped_at`. If that is 0 there was
        no step, and the earlier pause goes on.
        """
        kind = kind_of(causes, is_first)
        goes_on = bool(self._kind) and not stepped_at
        if goes_on and kind != self._kind:
            kind = self._kind if self._kind == "start_s" else ""
        self._last = stepped_at or self._last
        is_known = bool(self._last) or kind == "start_s"
        self._kind = kind if is_known else ""  # no step was seen before it

    def see(self, speeds: Iterable[Speed]) -> None:
        """Take in the reports of the workers of this round."""
        first_at = max((speed.first_at for speed in speeds), default=0.0)
        if not self._kind or not first_at:
            return
        seconds = first_at - (self._began if self._kind == "start_s" else self._last)
        if 0.0 <= seconds <= MOST_S:
            self.pauses = replace(self.pauses, **{self._kind: seconds})
        self._kind = ""


def kind_of(causes: Iterable[Cause], is_first: bool) -> str:
    """Return the field of ToldPauses for these causes, empty if no field fits."""
    kinds = {cause.kind for cause in causes}
    if is_first:
        return "start_s" if kinds == {CauseKind.START} else ""
    if CauseKind.LOST in kinds:
        return "loss_s"
    only = {CauseKind.JOINED: "grow_s", CauseKind.LEFT: "shrink_s"}
    return only.get(kinds.pop(), "") if len(kinds) == 1 else ""


def fragment_began(env: Mapping[str, str]) -> float:
    """Return when Slurm started the fragment, else the present time."""
    text, now = env.get(_STARTED, ""), time.monotonic()
    is_count = text.isascii() and text.isdigit() and len(text) < 12
    ago_s = time.time() - int(text) if is_count else 0.0
    return now - ago_s if 0.0 <= ago_s <= MOST_S else now
