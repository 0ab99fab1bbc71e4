"""A Slurm made of captured output: answers by the command's name and records the questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Union

from slurm_hooks.errors import CommandRefused
from slurm_hooks.slurm.live import Asked
from slurm_hooks.slurm.text import Command


@dataclass
class Recorded:
    """Answers from `answers`, which maps a program, or `scontrol show`, to its output.

    A program that maps to an exception raises it. Writes return an empty answer.
    """

    answers: Mapping[str, Union[str, Exception]]
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
