"""One row per engine, as what runs in a job knows it. A test compares it with the table of the
reconciler (slurm_hooks/engines.py) and that of the plugin (plugins/spank/engines.c).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Engine:
    """What is particular to one engine. Its code is the folder of the same name."""

    name: str  # as in --malleable=...,engine=NAME
    is_gang: bool  # all fragments are one world; otherwise each is a world of its own
    has_rounds: bool  # training stops while fragments come and go
    by_torchrun: bool  # the script starts torchrun, so it gets PET_* and our rendezvous
    zero_finishes: bool  # exit code 0 means: the training has finished; else: none left for me


ENGINES = {
    row.name: row
    for row in (
        Engine("torchrun", is_gang=True, has_rounds=True, by_torchrun=True, zero_finishes=True),
        Engine("torchft", is_gang=False, has_rounds=False, by_torchrun=True, zero_finishes=True),
    )
}
