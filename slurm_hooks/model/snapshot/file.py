"""A snapshot as a file, so that a tick can be planned again elsewhere or later.

The format is internal: its keys are the fields of the model, and another release may have others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from slurm_hooks.errors import UsageError
from slurm_hooks.model import Snapshot
from slurm_hooks.model.snapshot.codec import BadData, from_data, to_data

FORMAT = "slurm-malleable snapshot"
MAX_CHARACTERS = 1 << 28  # 10,000 nodes and 300 jobs of 64 fragments take a thirteenth of it


def snapshot_text(snapshot: Snapshot) -> str:
    """The text of the file: a JSON object, with each part of the snapshot on separate lines."""
    return json.dumps({"format": FORMAT, "snapshot": to_data(snapshot)}, indent=1) + "\n"


def save(snapshot: Snapshot, path: Path) -> None:
    """Write the file. Raises OSError where that is not possible."""
    path.write_text(snapshot_text(snapshot), encoding="utf-8")


def read(path: Path) -> Snapshot:
    """The snapshot in a file. Raises UsageError with the key at fault, OSError if unreadable."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
        if len(text) > MAX_CHARACTERS:
            raise UsageError(f"{path}: not a snapshot: longer than {MAX_CHARACTERS:,} characters")
        data = json.loads(text)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a snapshot: not UTF-8 text") from error
    except ValueError as error:
        raise UsageError(f"{path}: not a snapshot: not valid JSON: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: not a snapshot: nested too deeply") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UsageError(f'{path}: not a snapshot: "format" is not "{FORMAT}"')
    try:
        return parse(data.get("snapshot"))
    except BadData as error:
        raise UsageError(f"{path}: snapshot: {error}") from error


def parse(data: Any) -> Snapshot:
    """The snapshot in plain data. Raises BadData."""
    snapshot: Snapshot = from_data(Snapshot, data)
    return snapshot
