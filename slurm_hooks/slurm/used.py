"""Reads the resources of a node that jobs could have, and the resources in use.

A node never looks freer than it is. A resource without a value, or with a value in an unknown form,
counts as used, except on a node that Slurm calls idle.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Optional

from slurm_hooks.model import Resources
from slurm_hooks.model.resources import GPU, Gres
from slurm_hooks.slurm.scontrol import Words
from slurm_hooks.slurm.text import is_slice, parse_gres

_NOTHING = ("", "(null)", "N/A")


def used_of(words: Words, total: Resources) -> Resources:
    """Return the used part of this `total` of a node, from its record in detail.

    For a completing node slurmctld shows no use, but starts no job there.
    """
    state = words.get("State", "")
    if "COMPLETING" in state:
        return total
    is_idle = state.startswith("IDLE")
    answers = (words.get("GresUsed", ""), words.get("GresDrain", ""), _gpus_in_tres(words, total))
    return Resources(
        cpus=_allocated(words, "CPUAlloc", total.cpus, is_idle),
        memory_mib=_allocated(words, "AllocMem", total.memory_mib, is_idle),
        gres=_gres(total.gres, *answers, is_idle) if total.gres else (),
    )


def total_of(words: Words, gres: Gres) -> Resources:
    """Return the resources of a node for jobs, less CoreSpecCount, CpuSpecList and MemSpecLimit. If
    the record is unreadable, return its `gres` alone."""
    try:
        cpus, memory = _number(words, "CPUTot", 1), _number(words, "RealMemory", 0)
        cpus = min(cpus, _number(words, "CPUEfctv", cpus))
        return Resources(cpus, max(0, memory - _number(words, "MemSpecLimit", 0)), gres)
    except ValueError:
        return Resources(0, 0, gres)


def _allocated(words: Words, key: str, total: int, is_idle: bool) -> int:
    try:
        return min(total, _number(words, key, 0 if is_idle else total))
    except ValueError:
        return total


def _number(words: Words, key: str, unsaid: int) -> int:
    text = words.get(key, str(unsaid))
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise ValueError(f"{key}={text}")
    return int(text)


def _gpus_in_tres(words: Words, total: Resources) -> Optional[int]:
    """Return the GPUs in AllocTRES, which needs gres/gpu in AccountingStorageTRES."""
    configured, allocated = (
        re.search(r"(?:^|,)gres/gpu=(\d{1,9})(?:,|$)", words.get(key, ""), re.ASCII)
        for key in ("CfgTRES", "AllocTRES")
    )
    if configured is None or int(configured.group(1)) != total.gpus:
        return None
    return int(allocated.group(1)) if allocated else 0


@lru_cache(maxsize=4096)
def _gres(total: Gres, said: str, drain: str, in_tres: Optional[int], is_idle: bool) -> Gres:
    """Return used counts by name. Used GPUs without a type count for every type."""
    read = dict(parse_gres(said))
    gpus = _gpus(dict(total), said, drain, in_tres, is_idle)
    whole = [name for name, _ in total if name.startswith(f"{GPU}:") and not is_slice(name)]
    untold = max(0, gpus - sum(read.get(name, 0) for name in whole))
    used = {name: read.get(name, 0) + untold for name in whole} | {GPU: gpus}
    return tuple(
        (name, min(has, used.get(name, read.get(name, 0 if is_idle else has))))
        for name, has in total
    )


def _gpus(
    total: dict[str, int], said: str, drain: str, in_tres: Optional[int], is_idle: bool
) -> int:
    """Return the number of used GPUs. A GPU with a used shard counts, and so does a drained GPU (no
    release up to 26.05 says which are drained)."""
    has = total.get(GPU, 0)
    known = [count for count in (_count(said), in_tres) if count is not None]
    drained = 0 if drain in _NOTHING else _count(drain)
    shared = _with_shards(total, said)
    if drained is None or (shared is None and not is_idle):
        return has
    allocated = max(known) if known else 0 if is_idle and said in _NOTHING else has
    return min(has, allocated + drained + (shared or 0))


def _count(text: str) -> Optional[int]:
    """Return the whole GPUs in slurmctld's text, which counts each type, or None without a GPU."""
    bare = re.sub(r"\([^()]*\)", "", text.replace(":(null)", ""))
    items = [item for item in bare.split(",") if re.match(rf"{GPU}\b", item)]
    if not items or not all(re.fullmatch(r"gpu(:[\w.+-]+)?:\d{1,9}", i, re.ASCII) for i in items):
        return None
    return dict(parse_gres(text)).get(GPU, 0)


def _with_shards(total: dict[str, int], said: str) -> Optional[int]:
    """Return the number of GPUs with shards or MPS in use, or None if the text does not say.

    `shard:3(1/4,-/4,2/4)` says two, and that a job has the other GPU as a whole. Early releases
    number the GPUs (22.05): `shard:(null):2(IDX:0,2)`.
    """
    form = r"(?:^|,)(shard|mps)(?::[\w.+-]+)??:(\d+)(?:\(([^()]*)\))?(?=,|$)"
    items = re.findall(form, said.replace(":(null)", ""), re.ASCII)
    counts = [_gpus_of(int(count), each) for _, count, each in items]
    has_all = {name for name, _, _ in items} >= {n for n in ("shard", "mps") if total.get(n)}
    return sum(count or 0 for count in counts) if has_all and None not in counts else None


def _gpus_of(count: int, each: str) -> Optional[int]:
    if not count or each.startswith("IDX:"):
        return count
    parts = [re.fullmatch(r"(\d+|-)/\d+", part, re.ASCII) for part in each.split(",")]
    if None in parts:
        return None
    return sum(part is not None and part.group(1) not in ("0", "-") for part in parts)
