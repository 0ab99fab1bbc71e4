"""What it costs the training to lose a node without notice, as the agent of rank 0 sees it at its
workers, told to the reconciler. Other agents see no checkpoints where one process writes them all.

Where every agent has a round of its own (torchft), and the others keep the state, each of them
tells that a hit costs a step, not all at the same moment.
"""

from __future__ import annotations

import random
from typing import Optional

from slurm_hooks.elastic.batch.job_comment import EVERY_S
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.mailbox import Mailbox
from slurm_hooks.elastic.observed import Loss, cost_of_hit, is_news

LOOK_S = 5.0


class HitCost:
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

    def look(self, now: float) -> None:
        """See what the workers have come to, and tell it if it is news. Cheap; does not raise."""
        if self._mailbox is None or now < self._next_look:
            return
        self._next_look = now + self._look_s
        self._next_word = self._next_word or now + self._spread_s
        is_kept = self._keep_state or self._mailbox.is_watched()
        found_s = cost_of_hit(self._mailbox.observed(), is_kept)
        if found_s is None or now < self._next_word:
            return
        loss = Loss(found_s, redoes=not (is_kept or self._mailbox.is_listened_to()))
        if is_news(self._own_element.told_loss, loss):
            self._next_word = now + self._every_s
            self._own_element.report_loss(loss)
