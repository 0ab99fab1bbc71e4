"""The result of a run: the numbers for people and scripts.

Efficiency U is the work done over the work of the same queue on dedicated nodes. Their number is
the average number of idle nodes (BFTrainer, arXiv 2106.12091).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

from slurm_hooks.replay.dedicated import Reference
from slurm_hooks.replay.outcome import Outcome
from slurm_hooks.replay.record import Record
from slurm_hooks.replay.running import Pause
from slurm_hooks.replay.starts import starts_by_size


def result(outcome: Outcome, record: Record, base: Reference) -> dict[str, Any]:
    """The numbers of a line, as plain data for JSON."""
    ledger, window_s = outcome.ledger, record.window_s
    images = {name: n / window_s for name, n in ledger.images.items()}
    total = math.fsum(images.values())
    idle = record.idle_node_s
    return {
        "efficiency": _share(total, base.total),
        "equivalent_nodes": record.equivalent_nodes,
        "images_per_s": total,
        "models": {n: _model(n, images, base, outcome) for n in sorted(base.images_per_s)},
        "idle_node_s": idle,
        "used_node_s": ledger.used_node_s,
        "used_share": _share(ledger.used_node_s, idle),
        "worked_node_s": ledger.worked_node_s,
        "node_hours": ledger.used_node_s / 3600,
        "preemptions": outcome.interruptions,
        "preempted_nodes": len(outcome.lost),
        "work_lost_node_s": ledger.paused_node_s[Pause.LOSS] + ledger.redone_node_s,
        "paused_node_s": {p.value: s for p, s in ledger.paused_node_s.items() if p != Pause.NONE},
        "redone_node_s": ledger.redone_node_s,
        "held_up": [asdict(row) for row in starts_by_size(record, outcome.lost)],
        "rescales": outcome.rescales,
        "ticks": outcome.ticks,
        "mean_job_s": {name: fmean(times) for name, times in sorted(outcome.job_s.items())},
        "jobs_done": sum(map(len, outcome.job_s.values())),
        "solve_s": _times(outcome.solve_s),
    }


def _model(
    name: str, images: dict[str, float], base: Reference, outcome: Outcome
) -> dict[str, Any]:
    mine, done = images.get(name, 0.0), outcome.job_s.get(name, [])
    return {
        "images_per_s": mine,
        "efficiency": _share(mine, base.images_per_s[name]),
        "jobs_done": len(done),
        "mean_job_s": fmean(done) if done else None,
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _times(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds) or [0.0]
    return {
        "count": len(seconds),
        "median": median(ordered),
        "p99": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        "maximum": ordered[-1],
    }
