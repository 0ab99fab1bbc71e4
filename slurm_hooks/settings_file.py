"""Where the site's settings are looked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

from slurm_hooks.errors import SettingsError
from slurm_hooks.settings import Settings, parse

DEFAULT_PATH = Path("/etc/slurm-malleable/malleable.toml")


def load(path: Optional[Path] = None) -> Settings:
    """The settings at `path`, else at $MALLEABLE_SETTINGS, else the site's file if there is one.

    Raises SettingsError with every fault. Without any file the shipped defaults hold.
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


def _from_environment() -> Optional[Path]:
    named = os.environ.get("MALLEABLE_SETTINGS")
    return Path(named) if named else None
