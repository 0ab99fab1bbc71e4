"""A whole tick, from Slurm's text to the text of the commands, without Slurm.

Run: python benchmarks/tick_whole.py [--nodes N] [--jobs N] [--others N]. Each row is a tick of a
process of its own, on the machine of `tick_plan` at a quarter, half and whole of the size: seconds
of the processor, and the most memory that the process had, Slurm's answers among it. The last line
is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from dataclasses import replace
from typing import Union

from slurm_text import answers
from tick_plan import FRAGMENTS, JOBS, NODES, SHARES, snapshot

from slurm_hooks.reconcile import tick
from slurm_hooks.settings import Settings
from slurm_hooks.slurm.gateway import observe

GOAL_S, GOAL_MIB = 2.0, 300
RUNS = 3
Row = dict[str, Union[int, float]]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"of {FRAGMENTS} fragments each")
    parser.add_argument("--others", type=int, default=0, help="pending jobs of others")
    options = parser.parse_args()
    rows = whole_ticks(options.nodes, options.jobs, options.others)
    print(lines(rows))
    whole = rows[-1]
    is_met = whole["tick_s"] <= GOAL_S and whole["peak_mib"] <= GOAL_MIB
    print(json.dumps({"benchmark": "tick_whole", "rows": rows, "is_met": is_met}))
    return 0 if is_met else 1


def whole_ticks(nodes: int = NODES, jobs: int = JOBS, others: int = 0) -> list[Row]:
    """A tick at a quarter, a half and the whole of the machine and its malleable jobs."""
    return [measured(round(share * nodes), round(share * jobs), others) for share in SHARES]


def lines(rows: list[Row]) -> str:
    """The rows for people to read."""
    names = list(rows[0])
    text = [[f"{row[name]:>10}" for name in names] for row in rows]
    return "\n".join(" ".join(cells) for cells in [[f"{name:>10}" for name in names], *text])


def measured(nodes: int, jobs: int, others: int) -> Row:
    """The least of some ticks, each in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        found = [pool.apply(_tick, (nodes, jobs, others)) for _ in range(RUNS)]
    return {name: min(row[name] for row in found) for name in found[0]}


def _tick(nodes: int, jobs: int, others: int) -> Row:
    """One tick; what its text is made of is not counted, but for the text itself."""
    port = answers(snapshot(nodes, jobs, FRAGMENTS), others)
    text_mib = (len(port.queue) + len(port.cluster)) / 2**20
    with tempfile.TemporaryDirectory() as place:
        shipped = Settings()
        settings = replace(shipped, tick=replace(shipped.tick, state_dir=f"{place}/state"))
        began = time.process_time()
        report = tick(port, settings)
        took = time.process_time() - began
    began = time.process_time()
    observe(port, settings.site.partitions)
    looked = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "nodes": nodes,
        "jobs": jobs,
        "others": others,
        "text_mib": round(text_mib, 1),
        "tick_s": round(took, 3),
        "observe_s": round(looked, 3),
        "actions": len(report.plan.actions),
        "rpcs": sum(command.rpcs for command in port.told),
        "peak_mib": round(peak),
    }


if __name__ == "__main__":
    sys.exit(main())
