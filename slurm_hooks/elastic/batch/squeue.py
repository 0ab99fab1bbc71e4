"""Running squeue: times come in epoch seconds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

TIMEOUT_S = 5.0


def answer(command: Sequence[str]) -> str:
    """What the command prints; nothing if it fails, or does not answer within seconds."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "SLURM_TIME_FORMAT": "%s"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""
