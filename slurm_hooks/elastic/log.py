"""The job's log: the standard error of the batch script."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """One line to the job's log."""
    sys.stderr.write(f"malleable: {text}\n")
    sys.stderr.flush()
