"""The question to squeue, and how its answer is cut into rows.

Job names, paths and whole comments are not in the question, so that no user can forge a row of the
answer. It has two texts that a user controls. Slurm has checked --constraint against the features
of nodes. The agent of a fragment reports its run in the first SAID_WIDTH bytes of Comment. Both may
hold whole lines. So a row ends with RECORD_END, which is longer than any text of a user there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from slurm_hooks.protocol.comment import WIDTH as SAID_WIDTH
from slurm_hooks.slurm.text import Command

JOB_FIELDS = (
    "JobArrayID",
    "State",
    "PriorityLong",
    "Partition",
    "UserName",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "restartcnt",
    "exit_code",
    "Reason",
    "NodeList",
    "ReqNodes",
    "SchedNodes",
    "Dependency",
    "MinMemory",
    "MinCPUs",
    "NumCPUs",
    "tres-per-node",
    "Feature",  # may hold a |, so FEATURES_END marks its end
    "admin_comment",  # free text of operators
    "comment",  # last, and always SAID_WIDTH bytes: its beginning is known
)
FEATURES_END = "|;|"
RECORD_END = "|" + "=" * (SAID_WIDTH + 1)
_PLAIN = JOB_FIELDS[:-3]
_BEGINNING = re.compile(r"\d+[^|\n]*\|", re.ASCII)


def jobs_command(partitions: Sequence[str] = ()) -> Command:
    """Ask for every job, even ended jobs, in these partitions or in all. Each array element has a
    line.

    Without --array squeue (22.05) folds held elements into a single line even if they differ.
    """
    plain = ",".join(f"{name}:|" for name in _PLAIN)
    fields = f"{plain},Feature:{FEATURES_END},admin_comment:|,comment:{SAID_WIDTH}{RECORD_END}"
    where = (f"--partition={','.join(partitions)}",) if partitions else ()
    everything = ("squeue", "--noheader", "--all", "--array", "--states=all")
    return Command((*everything, *where, f"-O{fields}"))


def records_in(text: str) -> tuple[list[str], list[str]]:
    """Return the rows without their ends, and the lines that belong to no row: lines before the
    beginning of a row, and the rest after the last row."""
    ended = text if not text or text.endswith("\n") else f"{text}\n"
    *whole, rest = ended.split(f"{RECORD_END}\n")
    rows, lines = [], []
    for record in whole:
        before, row = _without_lines_before(record)
        rows.append(row)
        lines += before
    return rows, lines + rest.splitlines()


def _without_lines_before(record: str) -> tuple[list[str], str]:
    lines: list[str] = []
    first, is_longer, rest = record.partition("\n")
    while is_longer and not _BEGINNING.match(first):
        lines.append(first)
        first, is_longer, rest = rest.partition("\n")
    return lines, first + is_longer + rest


def row_of(record: str) -> Optional[dict[str, str]]:
    """Return the stripped values of a row by their fields, or None if the row is not whole."""
    parts = record.split("|", len(_PLAIN))
    if len(parts) != len(_PLAIN) + 1 or not _BEGINNING.match(record):
        return None
    features, is_there, rest = parts[-1].partition(FEATURES_END)
    if not is_there or "\n" in record[: len(record) - len(rest)]:
        return None
    admin, said = _comments(rest)
    values = [*parts[:-1], features, admin, said]
    return dict(zip(JOB_FIELDS, map(str.strip, values)))


def _comments(text: str) -> tuple[str, str]:
    """Return AdminComment up to its first line break, and the beginning of Comment, cut and filled
    to its width in bytes."""
    raw = text.encode("utf-8", "surrogateescape")
    start = len(raw) - SAID_WIDTH
    said = b""
    if start >= 1 and raw[start - 1 : start] == b"|":
        raw, said = raw[: start - 1], raw[start:]
    admin = raw.decode("utf-8", "surrogateescape").splitlines()
    return (admin[0] if admin else ""), said.decode("utf-8", "surrogateescape")
