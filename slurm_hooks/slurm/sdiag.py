"""Asks slurmctld for its own load."""

from __future__ import annotations

import re
from typing import Optional

from slurm_hooks.slurm.text import Command

_THREADS = re.compile(r"^Server thread count:\s*(\d{1,9})\s*$", re.MULTILINE | re.ASCII)


def diagnosis_command() -> Command:
    """Ask slurmctld for its statistics."""
    return Command(("sdiag",))


def parse_threads(text: str) -> Optional[int]:
    """Return how many requests slurmctld answers now, or None if the answer does not say."""
    match = _THREADS.search(text)
    return int(match.group(1)) if match else None
