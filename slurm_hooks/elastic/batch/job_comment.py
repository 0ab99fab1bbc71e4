"""Slurm's commands for the Comment of this job. comment_writer.py calls them."""

from __future__ import annotations

import shutil
import subprocess

from slurm_hooks.elastic.batch.command import ask

EVERY_S = 60.0  # slurmctld gets at most one change of a job in this time
TIMEOUT_S = 10.0


def missing_commands() -> list[str]:
    """Return the names of Slurm's commands that are needed here and missing."""
    return [name for name in ("squeue", "scontrol") if shutil.which(name) is None]


def read(job: str, limit_s: float) -> str:
    """Return the Comment. Raises OSError or SubprocessError."""
    return _ask(["squeue", "--noheader", f"--job={job}", "--format=%k"], limit_s)


def write(job: str, text: str, limit_s: float) -> None:
    """Replace the Comment. Raises OSError or SubprocessError."""
    text = text.replace("\0", "")  # an argument of a command cannot contain it
    _ask(["scontrol", "update", f"JobId={job}", f"Comment={text}"], limit_s)


def _ask(words: list[str], limit_s: float) -> str:
    said, why = ask(*words, limit_s=max(0.1, min(TIMEOUT_S, limit_s)))
    if why:
        raise (subprocess.SubprocessError if shutil.which(words[0]) else FileNotFoundError)(why)
    return said.strip()
