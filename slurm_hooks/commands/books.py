"""Open the files that ticks write, for commands, and report why a file cannot be opened."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slurm_hooks.errors import MalleableError, NotAllowed, UsageError
from slurm_hooks.history.database import Barred, Damaged, Unusable, reading
from slurm_hooks.history.place import ledger_path
from slurm_hooks.settings.values import Settings


@contextlib.contextmanager
def opened_ledger(settings: Settings) -> Iterator[Any]:
    """The ledger, to read. Raises NotAllowed or UsageError with a remedy."""
    path = ledger_path(settings.tick.state_dir)
    try:
        with reading(path) as ledger:
            yield ledger
    except Unusable as error:
        off = "" if settings.ledger.enabled else "ledger.enabled is false: ticks write no ledger"
        raise complaint("read the ledger", path, error, off) from error


def complaint(tried: str, path: Path, error: Exception, off: str) -> MalleableError:
    """The error of a command that `tried` to use a file. `off` says that the settings disable the
    file."""
    message = f"cannot {tried} {path}: {error}"
    if isinstance(error, (Barred, PermissionError)):
        return NotAllowed(message)
    if isinstance(error, Damaged):
        return UsageError(f"{message}. The next tick moves it aside and starts a new file")
    if os.path.lexists(path):
        return UsageError(message)
    if not off:
        message = f"no tick has run yet: {message}"
    made = "The first tick creates it. Are these the tick's settings? Else use --settings FILE"
    return UsageError(f"{message}. {off or made}")
