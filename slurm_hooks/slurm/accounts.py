"""The account of one job. It is asked for one job at a time, and never with the others: without an
accounting database a user may write anything there, even a line that looks like somebody's job.
"""

from __future__ import annotations

import re

from slurm_hooks.slurm.text import Command


def account_command(job_id: int) -> Command:
    """Which account the elements of this array are charged to."""
    return Command(("squeue", "--noheader", "--states=all", f"--job={job_id}", "-Oaccount:64"))


def parse_account(text: str) -> str:
    """The account in the first line, in plain characters; empty for none."""
    first = next(iter(text.splitlines()), "").strip()
    if first in ("(null)", "N/A"):
        return ""
    return re.sub(r"[^A-Za-z0-9_.@+-]", "_", first)[:64]
