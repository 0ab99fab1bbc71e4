"""Keeps the answer about the terms of QOS for an hour.

It comes from slurmdbd, which a tick need not ask each time, and which may be down.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from slurm_hooks.books.storage.place import make_place
from slurm_hooks.errors import CommandRefused, MissingProgram, RetryLater
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.terms import terms_command

NAME = "qos-terms"
KEPT_S = 3_600


def terms_reader(port: Port, directory: str, is_reading: bool) -> Callable[[], str]:
    """Return a function that gives the answer to terms_command.

    It reads the file in the state directory, or asks sacctmgr once that is old. A caller that only
    reads (`is_reading`) keeps no answer.
    """
    path = Path(directory) / NAME

    def read() -> str:
        with contextlib.suppress(OSError, ValueError):
            if 0 <= time.time() - path.stat().st_mtime < KEPT_S:
                return path.read_text()
        try:
            text = port.ask(terms_command())
        except (CommandRefused, RetryLater, MissingProgram):
            with contextlib.suppress(OSError, ValueError):
                return path.read_text()  # an old answer is better than no answer
            raise
        if text.strip() and not is_reading:
            _keep(path, text)
        return text

    return read


def _keep(path: Path, text: str) -> None:
    """Write the answer. If the disk is full, the next tick asks again."""
    with contextlib.suppress(OSError, ValueError):
        new = make_place(path).with_name(f"{NAME}.new")
        new.write_text(text)
        os.replace(new, path)
