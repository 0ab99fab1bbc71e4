"""Count the workers that a fragment holds, as its request counts them: by the share that Slurm
gave.

The plan counts the same way. So a rate belongs to the size that Slurm gave, however many processes
the script starts there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

from slurm_hooks.protocol.request import GPU, REQUEST_VARIABLE, Request, counted

SLOT_VARIABLE = (
    "SLURM_SPANK_MALLEABLE_SLOT"  # the needs of a worker, as in the mark: cpu:4+mem:8192
)
_CPUS = re.compile(r"(?:\A|\+)cpu:([1-9][0-9]{0,5})(?:\+|\Z)")


def request_of(env: Mapping[str, str]) -> Optional[Request]:
    """Return the units that this job's request counts, or `None` if it counts nodes."""
    return counted(env.get(REQUEST_VARIABLE, ""))


def workers_here(env: Mapping[str, str]) -> int:
    """Return the workers of this fragment: 1 if sizes count nodes, and at most the job's MAX."""
    request = request_of(env)
    if request is None:
        return 1
    if request.kind == GPU:
        workers = _number(env.get("SLURM_GPUS_ON_NODE", ""))
    else:
        workers = _cpus(env) // _cpus_of_worker(env)
    return min(max(workers, 1), request.largest)


def _cpus(env: Mapping[str, str]) -> int:
    """Return the CPUs that a task asked for. Slurm gives whole cores, which may be more."""
    return _number(env.get("SLURM_CPUS_PER_TASK", "")) or _number(env.get("SLURM_CPUS_ON_NODE", ""))


def _cpus_of_worker(env: Mapping[str, str]) -> int:
    match = _CPUS.search(env.get(SLOT_VARIABLE, ""))
    return int(match[1]) if match else 1


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
