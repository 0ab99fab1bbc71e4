"""`report()`: how far the training is by its own account, which overrides the observations.

The agent is told, and tells Slurm in its turn (agent/throughput.py). The training must never
notice, so failures are not reported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import cache

from slurm_hooks.elastic.batch.job_comment import EVERY_S
from slurm_hooks.elastic.log import suppressed
from slurm_hooks.elastic.mailbox import MailboxReader
from slurm_hooks.elastic.script import observation


class Reporter:
    """The first of all processes reports for all of them."""

    def __init__(self, env: Mapping[str, str], every_s: float = EVERY_S) -> None:
        self._is_leader = env.get("RANK", "0") == "0"
        self._mailbox = MailboxReader(env)
        self._every_s = every_s
        self._due = 0.0  # each report changes the state that all agents share

    def report(self, samples: int) -> None:
        """As `report` below."""
        if self._is_leader:
            self._tell(samples)
        observation.see_call("report")

    def _tell(self, samples: int) -> None:
        with suppressed(TypeError, ValueError, OverflowError, doing="reading what was reported"):
            count = int(samples)
            observation.see_reported(count)
            now = time.monotonic()
            if now >= self._due and count >= 0:
                self._due = now + self._every_s
                self._mailbox.write_samples(count)


def report(samples: int, loss: float | None = None) -> None:
    """Report the samples learnt so far in all processes together. Cheap: call it every step. `loss`
    is accepted for scripts that know it, and ignored.
    """
    _reporter().report(samples)


@cache
def _reporter() -> Reporter:
    return Reporter(os.environ)
