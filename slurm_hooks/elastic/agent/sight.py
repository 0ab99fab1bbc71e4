"""Watch the training processes of a node, and tell Slurm."""

from __future__ import annotations

from typing import Optional

from slurm_hooks.elastic.agent.interruption_cost import InterruptionCost
from slurm_hooks.elastic.agent.stall import StallReports
from slurm_hooks.elastic.agent.throughput import Throughput
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.mailbox import Mailbox
from slurm_hooks.elastic.rendezvous.state import Round


class Sight:
    """`keep_state`: see World. With it every agent has its own round."""

    def __init__(
        self, mailbox: Optional[Mailbox], own_element: OwnElement, keep_state: bool
    ) -> None:
        self._interruption_cost = InterruptionCost(mailbox, own_element, keep_state)
        self._throughput = Throughput(None if keep_state else mailbox, own_element)
        self._stalls = StallReports(mailbox)

    def begin_round(self, round_: Round, is_first: bool) -> None:
        """New workers start. `is_first`: this agent was in no round before."""
        self._throughput.begin_round(round_, is_first)
        self._stalls.begin_round()

    def look(self, now: float, rank: int) -> None:
        """Look at the workers. The agent of rank 0 reports. Cheap. Does not raise."""
        self._throughput.look(now, tells=rank == 0)
        self._interruption_cost.look(now, is_first=rank == 0)
        self._stalls.look(now, tells=rank == 0)

    def end(self) -> None:
        """This agent leaves. Does not raise."""
        self._stalls.withdraw()
