"""The end of this fragment's lease, and whether it is time to leave.

Only the batch system knows it. `squeue` is asked once at the start (the same answer shows which
other fragments are wanted), and again before the end. A lease is renewed by a higher time limit of
the job. Leases of a job end together, and a site may limit the requests of a user. So each fragment
first asks at its own random time, in the background. It asks again at the last moment only if its
lease was not renewed by then. If squeue does not answer at the start, that is logged, and it is
asked again in the background. SLURM_JOB_END_TIME exists from Slurm 23.02 on and does not follow a
renewal, so it is only a hint.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Optional

from slurm_hooks.elastic.batch import expected
from slurm_hooks.elastic.batch.command import answer
from slurm_hooks.elastic.batch.expected import ArrayFacts, epoch
from slurm_hooks.elastic.log import say, suppressed

ASK_AHEAD_S = 2.0
JOINT_S = 30.0
CLOCK_S = 300.0
EARLY_S = 30.0  # so long before the last moment at most
AGAIN_S = 30.0  # between questions for an unknown end


class Step(Enum):
    """The next step for the lease."""

    KEEP = "keep"
    ASK = "ask"
    LEAVE = "leave"


def decide(
    now: float, ends: int, notice_s: float, is_confirmed: bool, together: bool = False
) -> Step:
    """Return the next step. `ends` and `now` are in epoch seconds. With `ends` 0 (unknown) it is
    KEEP.

    `is_confirmed`: Slurm confirmed this very end a moment ago. `together`: others leave right now,
    and a lease that ends soon leaves with them to spare a second interruption.
    """
    if ends <= 0:
        return Step.KEEP
    left_s = ends - now
    ahead_s = notice_s + (JOINT_S if together else ASK_AHEAD_S)
    if left_s > ahead_s:
        return Step.KEEP
    if not is_confirmed:
        return Step.ASK
    return Step.LEAVE if together or left_s <= notice_s else Step.KEEP


def request(job_id: str) -> list[str]:
    """Return the command that prints a job's end as epoch seconds (with environment below)."""
    return ["squeue", "--noheader", f"--job={job_id}", "--format=%e"]


def hint(env: Mapping[str, str]) -> int:
    """Return the end according to the environment, 0 if it is missing."""
    return epoch(env.get("SLURM_JOB_END_TIME", ""))


def ask(env: Mapping[str, str]) -> int:
    """Ask Slurm for the end, within seconds. Return 0 without an answer."""
    job = expected.own_job(env)
    return epoch(answer(request(job))) if job else 0


def ask_all(env: Mapping[str, str]) -> ArrayFacts:
    """Ask for the end, and for the other wanted fragments of the job's array, by a single command.

    Outside of an array, or without an answer, the wanted fragments are unknown.
    """
    array, own = env.get("SLURM_ARRAY_JOB_ID", ""), env.get("SLURM_ARRAY_TASK_ID", "")
    if not (array.isdigit() and own.isdigit()):
        return ArrayFacts(ends=ask(env))
    return expected.parse(answer(expected.request(array)), int(own))


def behind(starts: int, now: float) -> float:
    """Return a lower bound of the seconds by which this node's clock is behind slurmctld's: no job
    runs before its start.

    A clock that is ahead only makes a fragment leave early. A node whose clock is off by more than
    munge's five minutes runs no jobs.
    """
    return min(CLOCK_S, max(0.0, starts - now))


class Lease:
    """The lease of this fragment by Slurm's last answer. `wanted` is from the answer at the
    start.
    """

    def __init__(
        self, env: Mapping[str, str], notice_s: float, first: Optional[ArrayFacts] = None
    ) -> None:
        """`first`: Slurm's answer of a moment ago, if it was asked."""
        self._env = env
        self._notice_s = notice_s
        self._confirmed_at = float("-inf")
        self._early_s = ASK_AHEAD_S + random.uniform(0.0, EARLY_S)
        self._looked_for = 0  # the end for which a renewal was looked up
        first = first or ask_all(env)
        self.wanted = first.wanted
        self._behind_s = behind(first.starts, time.time())
        self.ends = first.ends or hint(env)
        self._asked_at = time.monotonic()
        if not self.ends and expected.own_job(env):
            say(
                "squeue does not report when this lease ends; retrying; until then this fragment "
                "leaves only at a notice"
            )

    def is_over(self, now: float, together: bool = False) -> bool:
        """Tell whether to leave now. Asks Slurm when that matters. Without an answer the known end
        counts: a longer stay would delay another user's start.
        """
        if not self.ends:
            self._ask_again()
        now += self._behind_s
        self._look_early(now)
        is_confirmed = now - self._confirmed_at < ASK_AHEAD_S + 1.0
        step = decide(now, self.ends, self._notice_s, is_confirmed, together)
        if step is Step.ASK:
            ends = ask(self._env)
            is_confirmed = ends <= self.ends
            self._confirmed_at = now if is_confirmed else float("-inf")
            self.ends = ends or self.ends  # a lease may have been cut as well
            step = decide(now, self.ends, self._notice_s, is_confirmed, together)
        return step is Step.LEAVE

    def _look_early(self, now: float) -> None:
        is_time = 0 < self.ends - now <= self._notice_s + self._early_s
        if is_time and self._looked_for != self.ends and expected.own_job(self._env):
            self._looked_for = self.ends
            _in_background(self._look)

    def _look(self) -> None:
        ends = ask(self._env)
        if self.ends == self._looked_for:  # else there is a newer answer
            self.ends = ends or self.ends

    def _ask_again(self) -> None:
        if time.monotonic() - self._asked_at < AGAIN_S or not expected.own_job(self._env):
            return
        self._asked_at = time.monotonic()
        _in_background(self._learn)

    def _learn(self) -> None:
        first = ask_all(self._env)
        if first.starts:
            self._behind_s = behind(first.starts, time.time())
        self.ends = self.ends or first.ends


def _in_background(do: Callable[[], None]) -> None:
    with suppressed(RuntimeError, doing="starting a thread that asks when the lease ends"):
        threading.Thread(target=do, daemon=True).start()
