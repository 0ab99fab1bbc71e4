"""Report a training that makes no step for long: in the job's log, and to `malleable explain`.

The report to `explain` is withdrawn when steps go on. An evaluation or a checkpoint may take as
long as a stall. So a pause that ended without help is remembered, and afterwards only a pause of
twice that length is reported.

Before its first step a round may load data and compile for longer. So it has a limit of its own,
and the report accuses nobody: a script without an optimizer of torch makes no step that is seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.elastic.batch.remark import withdraw_remark, write_remark
from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.mailbox import Mailbox
from slurm_hooks.elastic.observed import Observed

LEAST_S = 60.0
FIRST_S = 120.0  # from the beginning of a round to its first step
TIMES = 10  # the usual step
_TIMES_KNOWN = 2  # the longest pause that ended without help
LOOK_S = 2.0
_LATE = 5  # looks: an agent that looks later than this was suspended itself


@dataclass(frozen=True)
class Stall:
    """The last step was `since_s` seconds ago, and a step usually takes `usual_s`. Or round
    `unstepped` began `since_s` seconds ago and has made no step.
    """

    since_s: float
    usual_s: float = 0.0
    unstepped: int = 0


class Pace:
    """The pace of the steps that an agent sees. Times are time.monotonic()."""

    def __init__(self, look_s: float = LOOK_S) -> None:
        self._look_s = look_s
        self._stepped_at = self._usual_s = self._longest_s = 0.0
        self._looked_at = self._quiet_s = 0.0  # seconds without a step, while this agent was awake
        self._unstepped = 0

    @property
    def has_stepped(self) -> bool:
        """Whether a step was seen in this round."""
        return not self._unstepped

    def begin_round(self, number: int) -> None:
        """New workers start."""
        self._looked_at = self._quiet_s = 0.0
        self._unstepped = number

    def see(
        self, now: float, workers: Iterable[Observed], awaits_first: bool = False
    ) -> Optional[Stall]:
        """Take in a look at the workers. Return a stall if there is a stall now.

        `awaits_first`: the workers are observed, and no worker has made or reported a step.
        """
        self._quiet_s += min(now - (self._looked_at or now), _LATE * self._look_s)
        self._looked_at = now
        newest = max(workers, key=lambda worker: worker.stepped_at, default=Observed())
        if newest.stepped_at > self._stepped_at:
            is_known = bool(self._stepped_at)
            self._longest_s = max(self._longest_s, self._quiet_s) if is_known else 0.0
            self._stepped_at, self._quiet_s = newest.stepped_at, 0.0
            self._usual_s = newest.step_s or self._usual_s
            self._unstepped = 0
        if self._unstepped:
            is_long = awaits_first and self._quiet_s >= max(FIRST_S, self._limit_s())
            return Stall(self._quiet_s, unstepped=self._unstepped) if is_long else None
        if not self._usual_s or self._quiet_s < self._limit_s():
            return None
        return Stall(now - self._stepped_at, self._usual_s)

    def _limit_s(self) -> float:
        return max(LEAST_S, TIMES * self._usual_s, _TIMES_KNOWN * self._longest_s)


def sentence(since: str, stall: Stall) -> str:
    """Return the sentence for the user."""
    if stall.unstepped:
        return f"in round {stall.unstepped} since {since}, no step seen yet"
    return f"no step since {since}, usually one every {float(f'{stall.usual_s:.2g}'):g} s"


class StallReports:
    """The stall reports of an agent. The agent of rank 0 reports. Methods do not raise."""

    def __init__(self, mailbox: Optional[Mailbox], look_s: float = LOOK_S) -> None:
        self._mailbox = mailbox
        self._pace = Pace(look_s)
        self._look_s, self._next_look = look_s, 0.0
        self._remark = ""  # as long as it stands
        self._since = 0.0  # the last step before it

    def begin_round(self, number: int) -> None:
        """New workers start."""
        self._pace.begin_round(number)

    def look(self, now: float, tells: bool) -> None:
        """See whether the workers step, and report it if they do not. Cheap."""
        if self._mailbox is None or now < self._next_look:
            return
        self._next_look = now + self._look_s
        speeds = self._mailbox.speeds().values()
        awaits_first = bool(speeds) and not any(speed.first_at for speed in speeds)
        stall = self._pace.see(now, self._mailbox.observed(), awaits_first)
        if stall is not None and tells:
            self._tell(stall, now)
            return
        if stall is None and self._remark and self._pace.has_stepped:
            say(f"steps go on after {now - self._since:.0f} s")
        self.withdraw()

    def withdraw(self) -> None:
        """Withdraw the report: it no longer holds, or this agent leaves."""
        if self._remark:
            withdraw_remark(self._remark)
            self._remark = ""

    def _tell(self, stall: Stall, now: float) -> None:
        if self._remark:
            return
        self._since = now - stall.since_s
        moment = time.localtime(time.time() - stall.since_s)
        since = time.strftime("%Y-%m-%d %H:%M", moment)
        say(sentence(f"{since} ({stall.since_s:.0f} s)", stall))
        self._remark = sentence(since, stall)  # without the seconds, which would soon be wrong
        write_remark(self._remark)
