"""The events of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_hooks.replay.running import Ledger

MOST_SAMPLES = 2_000


@dataclass
class Outcome:
    """Sums over the whole record.

    `interruptions` counts how often a job lost nodes without notice (once per moment), `lost` says
    which (time, node). `samples` are (time, idle nodes, used nodes). `last_done_s` is when the last
    job ended.
    """

    ledger: Ledger = field(default_factory=Ledger)
    interruptions: int = 0
    lost: list[tuple[float, int]] = field(default_factory=list)
    rescales: int = 0
    ticks: int = 0
    solve_s: list[float] = field(default_factory=list)
    job_s: dict[str, list[float]] = field(default_factory=dict)
    samples: list[tuple[float, int, int]] = field(default_factory=list)
    last_done_s: float = 0.0
