"""The account and QOS of each job, in a separate question to squeue.

Without an accounting database Slurm (22.05) takes any text as an account, even text that looks like
another job. So the account is cut to a width, and read only if it is a plain word.
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
    """The account and QOS of a job. `qos` is empty if the job has no QOS, or several."""

    account: str
    qos: str = ""


def charges_command(partitions: Sequence[str] = ()) -> Command:
    """Ask for the account and QOS of every job that waits or runs, in these partitions or all."""
    fields = f"-OArrayJobID:|,Account:{_WIDTH}|,QOS:{_WIDTH}|"
    chosen = (f"--partition={','.join(partitions)}",) if partitions else ()
    return Command(("squeue", "--noheader", "--all", *chosen, fields))


def parse_charges(text: str) -> dict[int, Charge]:
    """Return charges by job id, without the jobs whose account is uncertain."""
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
