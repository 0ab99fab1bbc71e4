"""The nodes of a machine and their sizes, from a list of names or from `scontrol show nodes`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from slurm_hooks.errors import UsageError
from slurm_hooks.model.resources import GPU, Resources
from slurm_hooks.replay.logs.log_lines import BadLine, Log, whole
from slurm_hooks.slurm.scontrol import Words, read_records
from slurm_hooks.slurm.text import parse_gres


def read_sizes(named: str) -> Mapping[str, Resources]:
    """The size of each node, from a file with the answer to `scontrol -o show nodes`. Empty without
    such a file. Raises BadLog, UsageError.

    Processors and memory that are reserved for the node's own system do not count.
    """
    if not os.path.isfile(named):
        return {}
    log = Log(Path(named))
    sizes: dict[str, Resources] = {}
    for number, text in log.lines():
        for words in read_records(text.strip(), "NodeName"):
            sizes.update(log.parsed(number, text, partial(_sized, words)))
    if not sizes:
        raise UsageError(f"--nodes {named}: no line begins with NodeName= (scontrol -o show nodes)")
    return sizes


def _sized(words: Words, _text: str) -> tuple[str, Resources]:
    cpus = _number(words, "CPUEfctv", words.get("CPUTot", ""))
    memory = _number(words, "RealMemory", "") - _number(words, "MemSpecLimit", "0")
    gpus = dict(parse_gres(words.get("Gres", ""))).get(GPU, 0)
    return words["NodeName"], Resources(cpus, memory, ((GPU, gpus),) if gpus else ())


def _number(words: Words, key: str, default: str) -> int:
    count = whole(words.get(key, default), f"{key} of {words['NodeName'][:40]}")
    if count < 0:
        raise BadLine(f"{key} of {words['NodeName'][:40]} is negative")
    return count
