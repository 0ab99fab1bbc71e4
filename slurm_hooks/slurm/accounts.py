"""What a job is charged to: a question of its own, never asked together with the others.

Without an accounting database Slurm (22.05) takes any text as an account, even one that looks like
somebody's job, so it is cut to a width and read only where it is a plain word.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_hooks.slurm.text import Command

_WIDTH = 64
_ROW = re.compile(r"(\d{1,10})\|([\w.@+-]+) *\|([^|]*?) *\|", re.ASCII)
_NO_QOS = ("", "(null)", "N/A")


@dataclass(frozen=True)
class Charge:
    """The account and QOS of a job; `qos` is empty for none, and if its elements have several."""

    account: str
    qos: str = ""


def charges_command(partitions: Sequence[str] = ()) -> Command:
    """The account and QOS of every job that waits or runs, in these partitions if any is named."""
    fields = f"-OArrayJobID:|,Account:{_WIDTH}|,QOS:{_WIDTH}|"
    chosen = (f"--partition={','.join(partitions)}",) if partitions else ()
    return Command(("squeue", "--noheader", "--all", *chosen, fields))


def parse_charges(text: str) -> dict[int, Charge]:
    """Charges by job id; a job of whose account nothing certain is said is not in it."""
    accounts: defaultdict[int, set[str]] = defaultdict(set)
    qos: defaultdict[int, set[str]] = defaultdict(set)
    for line in text.splitlines():
        row = _ROW.fullmatch(line)
        if row and len(row.group(2)) < _WIDTH:
            job_id = int(row.group(1))
            accounts[job_id].add(row.group(2))
            qos[job_id].add("" if row.group(3) in _NO_QOS else row.group(3))
    return {
        job_id: Charge(account, min(qos[job_id]) if len(qos[job_id]) == 1 else "")
        for job_id, (account, *others) in accounts.items()
        if not others
    }
