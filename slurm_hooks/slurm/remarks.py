"""A job's remarks about itself: the question to squeue and how to read its answer.

A user can write the Comment of a job. So only `malleable explain` shows the remarks. No tick asks
for them, and no decision depends on them.
"""

from __future__ import annotations

import re

from slurm_hooks.slurm.text import Command
from slurm_hooks.words.comment import REMARK_WIDTH, remarks_in

COUNT = 3


def remarks_command(job_id: int) -> Command:
    """Ask for the comments of all elements of a job, each cut to 2000 characters."""
    return Command(
        ("squeue", "--noheader", "--array", "--states=all", f"--jobs={job_id}", "--format=%2000k")
    )


def parse_remarks(text: str) -> tuple[str, ...]:
    """Return the texts of all `remark{...}`: printable ASCII, bounded in length and number."""
    texts = (re.sub(r"[^ -~]", "?", remark)[:REMARK_WIDTH].strip() for remark in remarks_in(text))
    return tuple(dict.fromkeys(t for t in texts if t))[:COUNT]
