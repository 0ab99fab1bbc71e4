"""The resources of a job in accounting: `billing=32,cpu=32,gres/gpu=4,mem=250G,node=2`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from slurm_hooks.model.resources import GPU, Resources
from slurm_hooks.replay.logs.log_lines import BadLine
from slurm_hooks.slurm.text import parse_memory

_GPU = "gres/gpu"
_COUNTED = re.compile(r"cpu|gres/gpu(?::.+)?")
_COUNT = re.compile(r"\d{1,9}", re.ASCII)
_SIZE = re.compile(r"\d{1,12}(?:\.\d{1,3})?[KMGT]?", re.ASCII)


def parse_tres(text: str) -> Resources:
    """Processors, memory and GPUs. Raises BadLine.

    Accounting may have GPUs by type only. If it has both, the sum contains all types.
    """
    counts: dict[str, int] = {}
    memory = 0
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if _COUNTED.fullmatch(name):
            if not _COUNT.fullmatch(value):
                raise BadLine(f"AllocTRES {part[:80]!r} is not a number of {name[:40]}")
            counts[name] = int(value)
        elif name == "mem":
            if not _SIZE.fullmatch(value):
                raise BadLine(f"AllocTRES {part[:80]!r} is not a size of memory")
            memory = parse_memory(value)
    typed = sum(n for name, n in counts.items() if name.startswith(f"{_GPU}:"))
    gpus = counts.get(_GPU, typed)
    return Resources(counts.get("cpu", 0), memory, ((GPU, gpus),) if gpus else ())


def spread(whole: Resources, nodes: int) -> Sequence[Resources]:
    """The part of each node, as even as whole numbers allow: accounting has only sums."""
    cpus, memory, gpus = (_even(n, nodes) for n in (whole.cpus, whole.memory_mib, whole.gpus))
    return [Resources(c, m, ((GPU, g),) if g else ()) for c, m, g in zip(cpus, memory, gpus)]


def _even(count: int, parts: int) -> list[int]:
    each, over = divmod(count, parts)
    return [each + (at < over) for at in range(parts)]
