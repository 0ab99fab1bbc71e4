"""Answers of a real Slurm, kept in tests/captured/VERSION/SITUATION.{squeue,scontrol}.txt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurm_hooks.errors import CommandRefused
from slurm_hooks.protocol.comment import HEAD_WIDTH
from slurm_hooks.slurm.live import Asked
from slurm_hooks.slurm.rows import RECORD_END, SAID_WIDTH
from slurm_hooks.slurm.text import Command

CAPTURED = Path(__file__).with_name("captured")
VERSIONS = sorted(path.name for path in CAPTURED.iterdir())
SITUATIONS = sorted(p.name.split(".")[0] for p in (CAPTURED / "22.05").glob("*.squeue.txt"))


@dataclass
class Recorded:
    """A Slurm that answers from `answers`, which maps a program, or `scontrol show`, to its output.

    It records the questions. A program that maps to an exception raises it. Writes return an empty
    answer.
    """

    answers: Mapping[str, str | Exception]
    asked: list[Asked] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)

    def ask(self, command: Command) -> str:
        """Return the captured answer. See Port."""
        self.asked.append(Asked(command.argv, command.rpcs, 0.0))
        self.commands.append(command)
        is_read = command.argv[0] == "squeue" or command.stdin.startswith("show ")
        key = command.argv[0] if command.argv[0] != "scontrol" or not is_read else "scontrol show"
        answer = self.answers.get(key, CommandRefused(f"{key}: no answer captured"))
        if not is_read and key not in self.answers:
            return ""
        if isinstance(answer, Exception):
            raise answer
        return answer


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
