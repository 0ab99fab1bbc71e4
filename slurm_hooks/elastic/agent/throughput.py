"""Measure how fast the training is at each size, and how long it pauses.

An agent sees this at the workers of its node, and the agent of rank 0 tells Slurm. The processes of
a training step together, so a node stands for all nodes of the round. A rate is reported at the
round's size as the request counts it: in nodes, or in workers. Every agent watches, because any of
them may be rank 0 in the next round. With torchft every agent has its own round. There the number
of nodes that train together is unknown, and no rate is reported.
"""

from __future__ import annotations

import os
import time
from typing import Optional

from slurm_hooks.elastic.agent.pauses import PauseWatch, fragment_began
from slurm_hooks.elastic.agent.rates import Rates
from slurm_hooks.elastic.agent.stretches import Stretches
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.batch.progress_entry import is_news
from slurm_hooks.elastic.mailbox import Mailbox
from slurm_hooks.elastic.rendezvous.state import Round

LOOK_S = 2.0


class Throughput:
    """The measurements of an agent."""

    def __init__(
        self, mailbox: Optional[Mailbox], own_element: OwnElement, look_s: float = LOOK_S
    ) -> None:
        self._mailbox = mailbox
        self._own_element = own_element
        self._look_s, self._next_look = look_s, 0.0
        self._nodes = self._size = 0
        self._stretches = Stretches()
        self._rates = Rates()
        self._pauses = PauseWatch(fragment_began(os.environ))

    def begin_round(self, round_: Round, is_first: bool) -> None:
        """New workers start. Call it before the mailbox is cleared. `is_first`: this agent was in
        no round before.
        """
        if self._mailbox is None:
            return
        if is_first:
            self._rates.recall(self._own_element.earlier_progress)
        stepped_at = max((w.stepped_at for w in self._mailbox.observed()), default=0.0)
        self._pauses.begin_round(round_.causes, stepped_at, is_first)
        self._nodes, self._size = len(round_.order), round_.size
        self._stretches = Stretches()

    def look(self, now: float, tells: bool) -> None:
        """See how fast the workers are. If this agent `tells`, report news. Cheap. Does not
        raise.
        """
        if self._mailbox is None or now < self._next_look or not self._nodes:
            return
        self._next_look = now + self._look_s
        speeds = self._mailbox.speeds()
        self._pauses.see(speeds.values())
        rate = self._stretches.steady() if self._stretches.see(speeds, self._nodes) else None
        if rate is not None:
            self._rates.note(self._size, rate, int(time.time()))
        if tells:
            self._tell()

    def _tell(self) -> None:
        reported = self._own_element.told_progress
        new = self._rates.as_progress(reported, self._pauses.pauses, self._stretches.sync)
        if new.rates and is_news(reported, new):
            self._own_element.report_progress(new)
