"""Small shell scripts in the place of programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_program(path: Path, text: str) -> Path:
    """A program that every user may run. Without a first line it is a script for /bin/sh."""
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def write_programs(directory: Path, texts: Mapping[str, str]) -> None:
    """Write programs by name. `{place}` in their text is the directory."""
    for name, text in texts.items():
        write_program(directory / name, text.replace("{place}", str(directory)))
