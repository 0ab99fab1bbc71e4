"""Keeps answers of slurmdbd for an hour: it may be down, and a tick need not ask it each time."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from slurm_hooks.books.place import make_place
from slurm_hooks.errors import CommandRefused, MissingProgram, RetryLater
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.text import Command

KEPT_S = 3_600.0


@dataclass
class Hourly:
    """A Port that runs the same question of sacctmgr once an hour.

    Each kind of question has a file in the state directory. A caller that only reads
    (`is_reading`) writes no file. An answer counts for `kept_s`.
    """

    port: Port
    directory: str
    is_reading: bool
    kept_s: float = KEPT_S

    def __post_init__(self) -> None:
        self.asked = self.port.asked

    def ask(self, command: Command) -> str:
        """Return the kept answer, or run the command once that is old. See Port."""
        path = kept_in(self.directory, command)
        kept = _kept(path, command)
        with contextlib.suppress(OSError):
            if kept is not None and 0 <= time.time() - path.stat().st_mtime < self.kept_s:
                return kept
        try:
            text = self.port.ask(command)
        except (CommandRefused, RetryLater, MissingProgram):
            if kept is not None:
                return kept  # an old answer is better than no answer
            raise
        if text.strip() and not self.is_reading:
            _keep(path, _head(command) + text)
        return text


def kept_in(directory: str, command: Command) -> Path:
    """The file for answers to this kind of question, named after what sacctmgr is to show."""
    return Path(directory) / f"sacctmgr-{command.argv[command.argv.index('show') + 1]}"


def _head(command: Command) -> str:
    return " ".join(command.argv) + "\n"


def _kept(path: Path, command: Command) -> Optional[str]:
    """Return the kept answer. None if there is none, or it answers another question."""
    head = _head(command)
    with contextlib.suppress(OSError, ValueError):
        text = path.read_text()
        return text[len(head) :] if text.startswith(head) else None
    return None


def _keep(path: Path, text: str) -> None:
    """Write the answer. If the disk is full, the next tick asks again."""
    with contextlib.suppress(OSError, ValueError):
        new = make_place(path).with_name(f"{path.name}.new")
        new.write_text(text)
        os.replace(new, path)
