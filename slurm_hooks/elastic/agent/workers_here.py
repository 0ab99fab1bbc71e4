"""How many workers a fragment holds, as its request counts them: by what Slurm gave it.

The plan counts the same way. So a rate is told at the size that Slurm gave, however many processes
the script starts there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

from slurm_hooks.words.counted import GPU, REQUEST_VARIABLE, Counted, counted

SLOT_VARIABLE = "SLURM_SPANK_MALLEABLE_SLOT"  # what a worker needs, as in the mark: cpu:4+mem:8192
_CPUS = re.compile(r"(?:\A|\+)cpu:([1-9][0-9]{0,5})(?:\+|\Z)")


def request_of(env: Mapping[str, str]) -> Optional[Counted]:
    """What the request of this job counts; None if that is nodes."""
    return counted(env.get(REQUEST_VARIABLE, ""))


def workers_here(env: Mapping[str, str]) -> int:
    """Workers of this fragment: 1 where sizes count nodes, and no more than the job may have."""
    request = request_of(env)
    if request is None:
        return 1
    if request.kind == GPU:
        found = _number(env.get("SLURM_GPUS_ON_NODE", ""))
    else:
        found = _cpus(env) // _cpus_of_one(env)
    return min(max(found, 1), request.largest)


def _cpus(env: Mapping[str, str]) -> int:
    """As they were asked for, as those of one task: Slurm gives whole cores, maybe more."""
    return _number(env.get("SLURM_CPUS_PER_TASK", "")) or _number(env.get("SLURM_CPUS_ON_NODE", ""))


def _cpus_of_one(env: Mapping[str, str]) -> int:
    found = _CPUS.search(env.get(SLOT_VARIABLE, ""))
    return int(found[1]) if found else 1


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
