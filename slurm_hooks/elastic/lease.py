"""When this fragment's lease ends, and whether it is time to go.

Only the batch system knows: `squeue` is asked once at the start and once shortly before
the end (a lease is renewed by raising the job's time limit). SLURM_JOB_END_TIME exists
from Slurm 23.02 on and does not follow a renewal, so it is only a hint.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from enum import Enum

ASK_AHEAD_S = 2.0
ASK_TIMEOUT_S = 5.0
JOINT_S = 30.0


class Step(Enum):
    """What to do about the lease now."""

    KEEP = "keep"
    ASK = "ask"
    LEAVE = "leave"


def decide(now: float, ends: int, notice_s: float, asked: bool, together: bool = False) -> Step:
    """The next step, `ends` and `now` in epoch seconds (ends 0: unknown, so never).
    `asked`: Slurm confirmed this very end a moment ago. `together`: others leave right
    now, and a lease that ends soon leaves with them to spare a second interruption."""
    if ends <= 0:
        return Step.KEEP
    left_s = ends - now
    ahead_s = notice_s + (JOINT_S if together else ASK_AHEAD_S)
    if left_s > ahead_s:
        return Step.KEEP
    if not asked:
        return Step.ASK
    return Step.LEAVE if together or left_s <= notice_s else Step.KEEP


def request(job_id: str) -> list[str]:
    """The command that prints a job's end as epoch seconds (with environment below)."""
    return ["squeue", "--noheader", f"--job={job_id}", "--format=%e"]


def parse(text: str) -> int:
    """Epoch seconds from squeue's answer, 0 if there is none ("N/A", nothing, junk)."""
    word = text.strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 12 else 0


def hint(env: Mapping[str, str]) -> int:
    """The end as the environment tells it, 0 if it does not."""
    return parse(env.get("SLURM_JOB_END_TIME", ""))


def ask(env: Mapping[str, str]) -> int:
    """Ask Slurm, within seconds; 0 if it cannot tell."""
    job_id = env.get("SLURM_JOB_ID", "")
    if not job_id.isdigit():
        return 0
    try:
        answer = subprocess.run(
            request(job_id),
            env={**os.environ, "SLURM_TIME_FORMAT": "%s"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return parse(answer.stdout) if answer.returncode == 0 else 0


class Lease:
    """The lease of this fragment as last heard."""

    def __init__(self, env: Mapping[str, str], notice_s: float) -> None:
        self._env = env
        self._notice_s = notice_s
        self._confirmed_at = float("-inf")
        self.ends = ask(env) or hint(env)

    def is_over(self, now: float, together: bool = False) -> bool:
        """Whether to leave now; asks Slurm when that matters. Without an answer the
        known end counts: staying past it would cost somebody else's start."""
        asked = now - self._confirmed_at < ASK_AHEAD_S + 1.0
        step = decide(now, self.ends, self._notice_s, asked, together)
        if step is Step.ASK:
            heard = ask(self._env)
            asked = heard <= self.ends
            self._confirmed_at = now if asked else float("-inf")
            self.ends = heard or self.ends  # a lease may have been cut as well
            step = decide(now, self.ends, self._notice_s, asked, together)
        return step is Step.LEAVE
