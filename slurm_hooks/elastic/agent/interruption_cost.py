"""How many seconds of training an interruption costs, reported to the reconciler.

The agent of rank 0 measures it at its workers. Other agents may see no checkpoints, because often a
single process writes them all.

A watched state makes an interruption cost a single step. It must be watched at that moment, and it
must be possible to write it to disk within the farewell. All nodes may be lost at the same moment,
and their memory with them. If a lost peer ends the other processes without a signal, an
interruption also costs the time between two copies.

With torchft every agent has its own round, and the other agents keep the state. There each agent
reports that an interruption costs a step, not all at the same moment.
"""

from __future__ import annotations

import math
import os
import random
from typing import Optional

from slurm_hooks.elastic.batch.job_comment import EVERY_S
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.farewell import farewell_s, was_too_short
from slurm_hooks.elastic.mailbox import Mailbox
from slurm_hooks.elastic.observed import Observed, cost_of_interruption, is_news
from slurm_hooks.protocol.comment import Loss

LOOK_S = 5.0
SURE_S = 9.0  # two looks: at the start of a round the state is not watched yet


class InterruptionCost:
    """`keep_state`: see World. `every_s` bounds how often Slurm is told."""

    def __init__(
        self,
        mailbox: Optional[Mailbox],
        own_element: OwnElement,
        keep_state: bool = False,
        look_s: float = LOOK_S,
        every_s: float = EVERY_S,
    ) -> None:
        self._mailbox = mailbox
        self._own_element = own_element
        self._keep_state = keep_state
        self._look_s, self._every_s = look_s, every_s
        self._next_look, self._next_word = 0.0, 0.0
        self._spread_s = random.uniform(0.0, every_s) if keep_state else 0.0
        self._farewell_s = farewell_s(os.environ)
        self._was_too_short = was_too_short(os.environ)
        self._not_kept_since: Optional[float] = None
        self._known_lag_s = 0.0  # of the newest copy that was seen

    def look(self, now: float, is_first: bool = True) -> None:
        """See how far the workers are, and report a new cost. Cheap. Does not raise.

        An agent that is not the first only withdraws a value that no longer holds.
        """
        if self._mailbox is None or now < self._next_look:
            return
        self._next_look = now + self._look_s
        self._next_word = self._next_word or now + self._spread_s
        seen, lag_s = self._mailbox.observed(), self._lag_s(self._mailbox)
        loss = self._loss(self._mailbox, seen, lag_s) if is_first else None
        if math.isfinite(lag_s):
            self._known_lag_s = lag_s
        if math.isfinite(lag_s) or not self._has_told_that_it_is_kept(seen):
            self._not_kept_since = None
            if loss is not None:
                self._tell(loss, now)
        elif not any(one.steps for one in seen):
            self._not_kept_since = None
        else:
            self._not_kept_since = self._not_kept_since or now
            if now - self._not_kept_since >= SURE_S:
                self._tell(loss, now)

    def _lag_s(self, mailbox: Mailbox) -> float:
        """Return by how many seconds the kept state is behind the last step, infinite without a
        kept state.
        """
        if self._keep_state:
            return 0.0
        is_slow = self._was_too_short or mailbox.writing_s() > self._farewell_s
        return math.inf if is_slow or not mailbox.is_watched() else mailbox.lag_s()

    def _loss(self, mailbox: Mailbox, seen: list[Observed], lag_s: float) -> Optional[Loss]:
        cost_s = cost_of_interruption(seen, lag_s)
        hears = self._keep_state or mailbox.is_watched() or mailbox.is_listened_to()
        return None if cost_s is None else Loss(cost_s, redoes=not hears)

    def _has_told_that_it_is_kept(self, seen: list[Observed]) -> bool:
        """Tell whether the Comment gives the cost of a kept state, perhaps since an earlier run."""
        reported, cost_s = (
            self._own_element.told_loss,
            cost_of_interruption(seen, self._known_lag_s),
        )
        return reported is not None and cost_s is not None and not is_news(reported, Loss(cost_s))

    def _tell(self, loss: Optional[Loss], now: float) -> None:
        reported = self._own_element.told_loss
        if now >= self._next_word and (loss is None or is_news(reported, loss)):
            self._next_word = now + self._every_s
            self._own_element.report_loss(loss)
