"""Which account a job is charged to: a question of its own, never asked together with the others.
Without an accounting database Slurm (22.05) takes any text as an account, even one that looks like
somebody's job, so it is cut to a width and read only where it is a plain word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from slurm_hooks.slurm.text import Command

_WIDTH = 64
_ROW = re.compile(r"(\d{1,10})\|([\w.@+-]+) *\|", re.ASCII)


def accounts_command(partitions: Sequence[str]) -> Command:
    """The account of every job that waits or runs in these partitions."""
    fields = f"-OArrayJobID:|,Account:{_WIDTH}|"
    chosen = f"--partition={','.join(partitions)}"
    return Command(("squeue", "--noheader", "--all", chosen, fields))


def parse_accounts(text: str) -> dict[int, str]:
    """Accounts by job id; a job of which nothing certain is said is not in it."""
    found: dict[int, set[str]] = {}
    for line in text.splitlines():
        row = _ROW.fullmatch(line)
        if row and len(row.group(2)) < _WIDTH:
            found.setdefault(int(row.group(1)), set()).add(row.group(2))
    return {job: names.pop() for job, names in found.items() if len(names) == 1}
