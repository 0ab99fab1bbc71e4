"""Names of jobs, in a separate question to squeue: for people to read, never for a decision.

Users choose them freely, so a name is cut to a width and shown in printable ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from slurm_hooks.slurm.text import Command

_WIDTH = 40
_ROW = re.compile(rf"(\d{{1,10}})\|(.{{{_WIDTH}}})\|", re.ASCII)


def names_command(partitions: Sequence[str]) -> Command:
    """Ask for the name of every job in these partitions, in a line for each element."""
    fields = f"-OArrayJobID:|,Name:{_WIDTH}|"
    chosen = f"--partition={','.join(partitions)}"
    return Command(("squeue", "--noheader", "--all", "--states=all", chosen, fields))


def parse_names(text: str) -> dict[int, str]:
    """Return names by job id. If a job has two names, as after a forged row, the first counts."""
    names: dict[int, str] = {}
    for line in text.splitlines():
        if row := _ROW.fullmatch(line):
            names.setdefault(int(row.group(1)), re.sub(r"[^ -~]", "?", row.group(2)).strip())
    return names
