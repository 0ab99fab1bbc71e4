"""A whole tick, from Slurm's text to the text of the commands, without Slurm.

Each row is a tick of a new process, on the machine of `tick_plan` at a quarter, half and whole of
the size. A row has processor seconds and the peak memory of the process, Slurm's answers included.
"""

from __future__ import annotations

import time

from parts.printing import Row, alone, peak_mib, timed
from parts.slurm_text import answers
from parts.tick_plan import FRAGMENTS, JOBS, NODES, SHARES, own_state, shared_snapshot, snapshot

from slurm_hooks.slurm.gateway import observe
from slurm_hooks.tick.reconcile import tick

GOAL_S, GOAL_MIB = 2.0, 300
SHARED_GOAL_S, SHARED_GOAL_MIB = 2.5, 400
RUNS = 3


def whole_ticks(nodes: int = NODES, jobs: int = JOBS, others: int = 0) -> list[Row]:
    """Tick at a quarter, a half and the whole of the machine and its malleable jobs."""
    return [measured(round(share * nodes), round(share * jobs), others) for share in SHARES]


def is_quick(rows: list[Row]) -> bool:
    """Return whether the whole machine's tick meets its goals."""
    return rows[-1]["tick_s"] <= GOAL_S and rows[-1]["peak_mib"] <= GOAL_MIB


def shared_ticks() -> list[Row]:
    """Tick where jobs share GPU nodes, at a quarter, a half and the whole."""
    sizes = ((round(share * NODES), round(share * JOBS)) for share in SHARES)
    return [measured(nodes, jobs, 0, is_shared=True) for nodes, jobs in sizes]


def is_quick_where_shared(rows: list[Row]) -> bool:
    """Return whether the tick of the whole machine of shared nodes meets its goals."""
    return rows[-1]["tick_s"] <= SHARED_GOAL_S and rows[-1]["peak_mib"] <= SHARED_GOAL_MIB


def measured(nodes: int, jobs: int, others: int, is_shared: bool = False) -> Row:
    """Return the least of some ticks, each in a new process."""
    rows = [alone(_tick, nodes, jobs, others, is_shared) for _ in range(RUNS)]
    return {name: min(row[name] for row in rows) for name in rows[0]}


def _tick(nodes: int, jobs: int, others: int, is_shared: bool) -> Row:
    """Tick once. The time to make Slurm's answers does not count."""
    make = shared_snapshot if is_shared else snapshot
    port = answers(make(nodes, jobs, FRAGMENTS), others)
    with own_state() as settings:
        report, took_s = timed(lambda: tick(port, settings), time.process_time)
    partitions = settings.site.partitions
    _, looked_s = timed(lambda: observe(port, partitions), time.process_time)
    return {
        "nodes": nodes,
        "jobs": jobs,
        "others": others,
        "text_mib": round((len(port.queue) + len(port.cluster)) / 2**20, 1),
        "tick_s": round(took_s, 3),
        "observe_s": round(looked_s, 3),
        "actions": len(report.plan.actions),
        "rpcs": sum(command.rpcs for command in port.changes),
        "peak_mib": round(peak_mib()),
    }
