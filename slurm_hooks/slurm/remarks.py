"""Texts of a job's user for people to read: names, and remarks in the Comment.

Users write them freely, so they are bounded and shown in printable ASCII. No tick asks for them,
and no decision depends on them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from slurm_hooks.protocol.comment import REMARK_WIDTH, remarks_in
from slurm_hooks.slurm.text import Command

COUNT = 3
_WIDTH = 40
_NAME = re.compile(rf"(\d{{1,10}})\|(.{{{_WIDTH}}})\|", re.ASCII)


def remarks_command(job_id: int) -> Command:
    """Ask for the comments of all elements of a job, each cut to 2000 characters."""
    return Command(
        ("squeue", "--noheader", "--array", "--states=all", f"--jobs={job_id}", "--format=%2000k")
    )


def parse_remarks(text: str) -> tuple[str, ...]:
    """Return the texts of all `remark{...}`: printable ASCII, bounded in length and number."""
    texts = (re.sub(r"[^ -~]", "?", remark)[:REMARK_WIDTH].strip() for remark in remarks_in(text))
    return tuple(dict.fromkeys(t for t in texts if t))[:COUNT]


def names_command(partitions: Sequence[str]) -> Command:
    """Ask for the name of every job in these partitions, in a line for each element."""
    fields = f"-OArrayJobID:|,Name:{_WIDTH}|"
    chosen = f"--partition={','.join(partitions)}"
    return Command(("squeue", "--noheader", "--all", "--states=all", chosen, fields))


def parse_names(text: str) -> dict[int, str]:
    """Return names by job id. If a job has two names, as after a forged row, the first counts."""
    names: dict[int, str] = {}
    for line in text.splitlines():
        if row := _NAME.fullmatch(line):
            names.setdefault(int(row.group(1)), re.sub(r"[^ -~]", "?", row.group(2)).strip())
    return names
