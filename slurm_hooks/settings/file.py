"""Finds and reads the file of the site's settings."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Optional

from slurm_hooks.errors import SettingsError
from slurm_hooks.settings.values import Settings, Tick, parse, state_dir_in

DEFAULT_PATH = Path("/etc/slurm-malleable/malleable.toml")


def load(path: Optional[Path] = None) -> Settings:
    """Return the settings at `path`, else at $MALLEABLE_SETTINGS, else in the site's file.

    Raises SettingsError with every fault. Without a file the settings are the shipped defaults.
    """
    chosen = path or _from_environment()
    if chosen is None:
        return load(DEFAULT_PATH) if DEFAULT_PATH.exists() else Settings()
    try:
        text = chosen.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingsError([f"cannot read the settings file {chosen}: {why}"]) from error
    return parse(text, str(chosen))


def state_dir(path: Optional[Path] = None) -> str:
    """Return `tick.state_dir` of the same file, even if other keys are wrong.

    If the file cannot be read, or is not TOML, return the shipped default.
    """
    chosen = path or _from_environment() or DEFAULT_PATH
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return state_dir_in(chosen.read_text(encoding="utf-8"))
    return Tick().state_dir


def _from_environment() -> Optional[Path]:
    named = os.environ.get("MALLEABLE_SETTINGS")
    return Path(named) if named else None
