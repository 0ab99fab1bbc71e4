"""What it costs the training to lose a node without notice, as the agent of rank 0 sees it at its
workers, told to the reconciler. Other agents see no checkpoints where one process writes them all.

A state that is watched costs a step, but only as long as it is, and only if it can be written down
within the farewell: all nodes may go at one moment, and then nobody's memory is left. Where a lost
peer ends the other processes without a word, it costs the time between two copies too.

Where every agent has a round of its own (torchft), and the others keep the state, each of them
tells that a hit costs a step, not all at the same moment.
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
from slurm_hooks.words.comment import Loss

LOOK_S = 5.0
SURE_S = 9.0  # two looks: at the start of a round nothing is watched yet


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
        """See what the workers have come to, and tell it if it is news; an agent that is not the
        first only takes back what does not hold any more. Cheap; does not raise."""
        if self._mailbox is None or now < self._next_look:
            return
        self._next_look = now + self._look_s
        self._next_word = self._next_word or now + self._spread_s
        seen, lag_s = self._mailbox.observed(), self._lag_s(self._mailbox)
        found = self._loss(self._mailbox, seen, lag_s) if is_first else None
        if math.isfinite(lag_s):
            self._known_lag_s = lag_s
        if math.isfinite(lag_s) or not self._has_told_that_it_is_kept(seen):
            self._not_kept_since = None
            if found is not None:
                self._tell(found, now)
        elif not any(one.steps for one in seen):
            self._not_kept_since = None
        else:
            self._not_kept_since = self._not_kept_since or now
            if now - self._not_kept_since >= SURE_S:
                self._tell(found, now)

    def _lag_s(self, mailbox: Mailbox) -> float:
        """By how much what is kept is behind the last step; infinite if nothing is."""
        if self._keep_state:
            return 0.0
        is_slow = self._was_too_short or mailbox.writing_s() > self._farewell_s
        return math.inf if is_slow or not mailbox.is_watched() else mailbox.lag_s()

    def _loss(self, mailbox: Mailbox, seen: list[Observed], lag_s: float) -> Optional[Loss]:
        cost_s = cost_of_interruption(seen, lag_s)
        hears = self._keep_state or mailbox.is_watched() or mailbox.is_listened_to()
        return None if cost_s is None else Loss(cost_s, redoes=not hears)

    def _has_told_that_it_is_kept(self, seen: list[Observed]) -> bool:
        """Whether the Comment says, since an earlier run perhaps, what a kept state costs."""
        told, cost_s = self._own_element.told_loss, cost_of_interruption(seen, self._known_lag_s)
        return told is not None and cost_s is not None and not is_news(told, Loss(cost_s))

    def _tell(self, found: Optional[Loss], now: float) -> None:
        told = self._own_element.told_loss
        if now >= self._next_word and (found is None or is_news(told, found)):
            self._next_word = now + self._every_s
            self._own_element.report_loss(found)
