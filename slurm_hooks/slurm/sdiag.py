"""How busy slurmctld is, by its own account."""

from __future__ import annotations

import re
from typing import Optional

from slurm_hooks.slurm.text import Command

_THREADS = re.compile(r"^Server thread count:\s*(\d{1,9})\s*$", re.MULTILINE | re.ASCII)


def diagnosis_command() -> Command:
    """Asks slurmctld for its statistics."""
    return Command(("sdiag",))


def parse_threads(text: str) -> Optional[int]:
    """How many requests slurmctld answers at this moment; None if it does not say so."""
    found = _THREADS.search(text)
    return int(found.group(1)) if found else None
