"""`report()`: how far the training is, for the profiling advisor.

The leader writes one short entry into the Comment of its own job, which a user may do, at
most once a minute, in the background, with a timeout. The training must never notice:
failures are not reported.
"""

from __future__ import annotations

import math
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from functools import cache

from slurm_hooks.elastic.batch import job_comment
from slurm_hooks.elastic.batch.expected import own_job
from slurm_hooks.elastic.batch.remark import WRITTEN_AT
from slurm_hooks.elastic.log import suppressed
from slurm_hooks.elastic.mailbox import MailboxReader
from slurm_hooks.elastic.observed import Observed
from slurm_hooks.elastic.script import observation


def entry(
    samples: int, loss: float | None, world: int, now: int, seen: Observed | None = None
) -> str:
    """`progress{samples=64000,loss=0.5312,world=4,step=0.0123,age=97,t=1700000000}`: seconds a
    step, and the age of the newest checkpoint, where they are seen."""
    known = "" if loss is None or math.isnan(loss) else f",loss={loss:.6g}"
    step = f",step={seen.step_s:.4g}" if seen and seen.step_s else ""
    age = f",age={seen.age_s:.0f}" if seen and seen.saves else ""
    return f"progress{{samples={samples}{known},world={world}{step}{age},t={now}}}"


class Reporter:
    """Writes at most one entry a minute; `world` is the number of processes."""

    def __init__(self, env: Mapping[str, str], every_s: float = job_comment.EVERY_S) -> None:
        self._job = own_job(env)
        self._is_leader = env.get("RANK", "0") == "0"
        self._world = int(env.get("WORLD_SIZE", "1"))
        self._every_s = every_s
        self._due = time.monotonic() + _wait_s(env, every_s, time.time())
        self._thread: threading.Thread | None = None
        self._mailbox = MailboxReader(env)

    def report(self, samples: int, loss: float | None = None) -> None:
        """As `report` below."""
        now = time.monotonic()
        if not self._job or not self._is_leader or now < self._due:
            return
        if self._thread is not None and self._thread.is_alive():
            return
        self._due = now + self._every_s
        told = (int(samples), loss, self._world, int(time.time()))
        progress = entry(*told, observation.seen())
        self._mailbox.write_samples(int(samples))
        self._thread = threading.Thread(target=self._write, args=(progress,), daemon=True)
        self._thread.start()

    def _write(self, progress: str) -> None:
        errors = OSError, subprocess.SubprocessError
        with suppressed(*errors, doing="writing progress to the Comment"):
            job_comment.change(self._job, lambda before: job_comment.merged(before, progress))


def _wait_s(env: Mapping[str, str], every_s: float, now: float) -> float:
    """Seconds until it is our turn, after a remark that may just have been written."""
    written_at = env.get(WRITTEN_AT, "")
    if not (written_at.isascii() and written_at.isdigit()):
        return 0.0
    return min(every_s, max(0.0, every_s - (now - int(written_at))))


def report(samples: int, loss: float | None = None) -> None:
    """Samples learnt so far in all processes together, and the loss if it is known (a
    number, not a tensor on a device: that would wait for it). Cheap; call it every step."""
    _reporter().report(samples, loss)


@cache
def _reporter() -> Reporter:
    return Reporter(os.environ)
