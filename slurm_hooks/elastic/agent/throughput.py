"""How fast the training is at each size, and how long it pauses, as an agent sees it at the workers
of its node; the agent of rank 0 tells Slurm.

Processes of a training step together, so what is seen here stands for all nodes of the round. A
rate is told at the round's size as the request counts it: in nodes, or in workers. Every
agent watches: any of them may be rank 0 in the next round. Where every agent has a round of its own
(torchft) nobody knows how many train together, and nothing is told.
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
    """Of one agent."""

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
        """There will be other workers; to be called before the mailbox is cleared. `is_first`: this
        agent was in no round before."""
        if self._mailbox is None:
            return
        stepped_at = max((one.stepped_at for one in self._mailbox.observed()), default=0.0)
        self._pauses.begin_round(round_.causes, stepped_at, is_first)
        self._nodes, self._size = len(round_.order), round_.size
        self._stretches = Stretches()

    def look(self, now: float, tells: bool) -> None:
        """See how the workers get on, and tell it if that is this agent's part and it is news.
        Cheap; does not raise."""
        if self._mailbox is None or now < self._next_look or not self._nodes:
            return
        self._next_look = now + self._look_s
        speeds = self._mailbox.speeds()
        self._pauses.see(speeds.values())
        found = self._stretches.steady() if self._stretches.see(speeds, self._nodes) else None
        if found is not None:
            self._rates.note(self._size, found, int(time.time()))
        if tells:
            self._tell()

    def _tell(self) -> None:
        told = self._own_element.told_progress
        new = self._rates.as_progress(told, self._pauses.pauses, self._stretches.sync)
        if new.rates and is_news(told, new):
            self._own_element.report_progress(new)
