"""Answers of a real Slurm, kept in tests/captured/VERSION/SITUATION.{squeue,scontrol}.txt."""

from __future__ import annotations

import re
from pathlib import Path

from slurm_hooks.slurm.recorded import Recorded
from slurm_hooks.slurm.rows import RECORD_END, SAID_WIDTH
from slurm_hooks.words.comment import HEAD_WIDTH

CAPTURED = Path(__file__).with_name("captured")
VERSIONS = sorted(path.name for path in CAPTURED.iterdir())
SITUATIONS = sorted(p.name.split(".")[0] for p in (CAPTURED / "22.05").glob("*.squeue.txt"))


def recorded(situation: str, version: str = "22.05") -> Recorded:
    """The recorded Slurm in that situation."""
    return recorded_in(CAPTURED / version, situation)


def recorded_in(directory: Path, situation: str) -> Recorded:
    """The Slurm with answers from a directory, in that situation."""
    return Recorded(
        {
            "squeue": as_asked_today((directory / f"{situation}.squeue.txt").read_text()),
            "scontrol show": (directory / f"{situation}.scontrol.txt").read_text(),
        }
    )


_WITHOUT_NUMCPUS = re.compile(r"^((?:[^|\n]*\|){18}([^|\n]*)\|)(?=\D)", re.MULTILINE)


def as_asked_today(text: str) -> str:
    """Change today's question to the question of the capture.

    Some answers have a shorter Comment column. Some lack NumCPUs, which is not read for jobs of
    whole nodes.
    """
    text = _WITHOUT_NUMCPUS.sub(r"\1\2|", text)
    if RECORD_END in text:
        return text
    rows = text.splitlines()
    assert all(row[-1] == row[-HEAD_WIDTH - 2] == "|" for row in rows)
    fill = " " * (SAID_WIDTH - HEAD_WIDTH)
    return "".join(f"{row[:-1]}{fill}{RECORD_END}\n" for row in rows)
