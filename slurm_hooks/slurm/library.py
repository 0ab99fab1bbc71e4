"""A Port that asks libslurm about jobs, if pyslurm is installed here.

Slurm's commands answer all other questions. squeue answers this question too, if libslurm cannot
give exactly the same answer. The library runs in a separate process with a command's time limit.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from slurm_hooks.errors import CommandRefused, MissingProgram
from slurm_hooks.slurm.live import Asked, Live, Port
from slurm_hooks.slurm.rows import jobs_command
from slurm_hooks.slurm.text import Command

_log = logging.getLogger(__name__)
_PROGRAM = Path(__file__).with_name("library_jobs.py")


def library_command() -> Command:
    """The program that answers in place of squeue, isolated from the caller's environment."""
    return Command((sys.executable, "-X", "utf8", "-I", str(_PROGRAM)))


def choose_port(live: Live, wanted: str) -> Port:
    """Return the port for `tick.port`: commands, pyslurm, or auto for pyslurm if it is installed.

    Raises MissingProgram if pyslurm is wanted and not installed.
    """
    if wanted == "commands":
        return live
    if find_spec("pyslurm") is not None:
        return WithLibrary(live)
    if wanted == "auto":
        return live
    raise MissingProgram(
        f"tick.port is pyslurm, which {sys.executable} cannot import: install the pyslurm of this "
        "Slurm's release (pip install pyslurm), or set tick.port to commands"
    )


@dataclass
class WithLibrary:
    """Slurm's commands, with pyslurm in place of squeue where it is exact."""

    live: Live
    asked: list[Asked] = field(init=False)

    def __post_init__(self) -> None:
        self.asked = self.live.asked

    def ask(self, command: Command) -> str:
        """Run a command or its replacement. See Port."""
        if command != jobs_command():
            return self.live.ask(command)
        try:
            return self.live.ask(library_command())
        except CommandRefused as error:
            _log.info("pyslurm cannot give the answer of squeue, so squeue is asked: %s", error)
            return self.live.ask(command)
