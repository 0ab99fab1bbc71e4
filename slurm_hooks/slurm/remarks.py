"""What a job says of itself: the question to squeue and how to read its answer.

A job's Comment is written by its user, so this is for `malleable explain` to show and for nobody
to act upon; no tick asks for it.
"""

from __future__ import annotations

import re

from slurm_hooks.slurm.text import Command
from slurm_hooks.words.comment import REMARK_WIDTH, remarks_in

COUNT = 3


def remarks_command(job_id: int) -> Command:
    """The comments of all elements of a job, each cut to what is worth looking through."""
    return Command(
        ("squeue", "--noheader", "--array", "--states=all", f"--jobs={job_id}", "--format=%2000k")
    )


def parse_remarks(text: str) -> tuple[str, ...]:
    """The texts of all `remark{...}`, printable ASCII, bounded in length and number."""
    texts = (re.sub(r"[^ -~]", "?", found)[:REMARK_WIDTH].strip() for found in remarks_in(text))
    return tuple(dict.fromkeys(t for t in texts if t))[:COUNT]
