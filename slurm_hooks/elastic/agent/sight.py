"""Watch the training processes of a node, and tell Slurm."""

from __future__ import annotations

import os
from typing import Optional

from slurm_hooks.elastic.agent.interruption_cost import InterruptionCost
from slurm_hooks.elastic.agent.pauses import fragment_began
from slurm_hooks.elastic.agent.settling import LONGEST_S, Training
from slurm_hooks.elastic.agent.stall import StallReports
from slurm_hooks.elastic.agent.throughput import Throughput
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.mailbox import Mailbox
from slurm_hooks.elastic.observed import Observed
from slurm_hooks.elastic.rendezvous.causes import CauseKind
from slurm_hooks.elastic.rendezvous.state import Round

_SLOW = 2  # times the last start: a start that takes longer may hang
_JOINED_S = 600.0  # the others know better how long a start takes


class Sight:
    """`keep_state`: see World. With it every agent has its own round."""

    def __init__(
        self, mailbox: Optional[Mailbox], own_element: OwnElement, keep_state: bool
    ) -> None:
        self._mailbox = mailbox
        self._began = fragment_began(os.environ)
        self._round_began = self._start_s = self._patience_s = self._unseen_s = 0.0
        self._interruption_cost = InterruptionCost(mailbox, own_element, keep_state)
        self._throughput = Throughput(None if keep_state else mailbox, own_element)
        self._stalls = StallReports(mailbox)

    def begin_round(self, now: float, round_: Round, is_first: bool) -> None:
        """New workers start. `is_first`: this agent was in no round before."""
        self._expect_step(now, round_, is_first)
        self._throughput.begin_round(round_, is_first)
        self._stalls.begin_round(round_.number)

    def _expect_step(self, now: float, round_: Round, is_first: bool) -> None:
        """Judge by the last rounds how long the first step may take.

        Workers whose steps cannot be seen are taken to start as slowly as this fragment did. A
        script without an optimizer of torch is known by a last round in which no step was seen.
        """
        last = self.training(now)
        is_unseen = last.start_s is None and last.age_s >= self._patience_s > 0
        self._start_s = last.start_s or self._start_s
        self._patience_s = self._unseen_s if is_unseen else max(LONGEST_S, _SLOW * self._start_s)
        if is_first:
            self._unseen_s = min(now - self._began, LONGEST_S)
            if all(cause.kind is not CauseKind.START for cause in round_.causes):
                self._patience_s = _JOINED_S
        self._round_began = now

    def training(self, now: float) -> Training:
        """Return what is seen of the training in this round. Cheap."""
        age_s = now - self._round_began
        speeds = self._mailbox.speeds().values() if self._mailbox else ()
        if self._mailbox is None or not speeds:
            return Training(age_s, patience_s=self._unseen_s)
        first_at = max(speed.first_at for speed in speeds)
        if not first_at:
            return Training(age_s, patience_s=self._patience_s)
        workers = self._mailbox.observed()
        newest = max(workers, key=lambda worker: worker.stepped_at, default=Observed())
        saved_at = max((worker.saved_at for worker in workers if worker.saves), default=None)
        return Training(
            age_s,
            start_s=first_at - self._round_began,
            idle_s=now - newest.stepped_at,
            step_s=newest.step_s,
            saved_s=saved_at and saved_at - self._round_began,
        )

    def look(self, now: float, rank: int) -> None:
        """Look at the workers. The agent of rank 0 reports. Cheap. Does not raise."""
        self._throughput.look(now, tells=rank == 0)
        self._interruption_cost.look(now, is_first=rank == 0)
        self._stalls.look(now, tells=rank == 0)

    def end(self) -> None:
        """This agent leaves. Does not raise."""
        self._stalls.withdraw()
