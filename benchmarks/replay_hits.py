"""What a lost node may cost, and what follows for the idle time used: `make bench-replay-hits`.

35 jobs with the pause measured on a sandbox, the reconciler's tick, latency, leases. Work goes back
to the last checkpoint at every loss: a second (agents keep each step boundary in memory) to ten
minutes (unchanged scripts). Jobs whose hits are cheap stay on their nodes past planned starts. With
`redo`, planned changes go back to the checkpoint as well, as they do in scripts that hear of no
notice. Prints a table, and one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import Any

from replay_runs import MEASURED, Run, measure
from rich.console import Console
from rich.table import Table

QUEUES = {"summit": "shufflenet", "theta_2022": "mix7", "curie_2012_thin": "shufflenet"}
LEAST = {"summit": 0.95, "theta_2022": 0.96}
LINES = ("event-driven", "tick 5, 1 s", "own pace, 1 s", "1 s", "30 s", "600 s", "equal 600 s")
LINES += ("redo", "equal redo")
console = Console(stderr=True, width=140)


def run_of(log: str, line: str) -> Run:
    """The run behind a line of the table."""
    run = Run(log, "default", 35, MEASURED, queue=QUEUES[log], ends="planned")
    if line == "event-driven":
        return run
    policy = "equal" if "equal" in line else "default"
    ticked = replace(run, policy=policy, tick_s=30.0, latency_s=2.0, checkpoint_s=600.0)
    if "redo" in line:
        return replace(ticked, redoes_planned=True)
    is_quick, is_own = "tick 5" in line, "own pace" in line
    quick = replace(ticked, tick_s=5.0, latency_s=1.0) if is_quick or is_own else ticked
    quick = replace(quick, has_own_pace=is_own)
    return replace(quick, checkpoint_s=float(line.split()[-2]))


def measured(log: str, lines: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Efficiency, hits, and node-seconds lost of each line."""
    found = {}
    for line in lines:
        result = measure(run_of(log, line))
        found[line] = {
            "efficiency": round(result["efficiency"], 4),
            "hits": result["preemption_hits"],
            "lost_node_s": round(result["work_lost_node_s"]),
            "wall_s": round(result["wall_s"], 1),
        }
        console.print(f"{log}, {line}: {found[line]}")
    return found


def verdicts(log: str, found: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """The goals of a log, and whether they are met."""
    value = {line: row["efficiency"] for line, row in found.items()}
    goals = {
        f"{log}: 600 s beats equal share by 3 %": value["600 s"] >= 1.03 * value["equal 600 s"],
        f"{log}: redo beats equal share by 3 %": value["redo"] >= 1.03 * value["equal redo"],
    }
    if log in LEAST:
        goals[f"{log}: {LEAST[log]} with cheap hits"] = value["tick 5, 1 s"] >= LEAST[log]
    return goals


def main() -> int:
    """All logs, or those named; the exit code says nothing of the goals."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("logs", nargs="*", help=f"{', '.join(QUEUES)} (default: all)")
    logs = parser.parse_args().logs or list(QUEUES)
    if unknown := sorted(set(logs) - set(QUEUES)):
        parser.error(f"there is no {', '.join(unknown)}, but {', '.join(QUEUES)}")
    found = {log: measured(log, LINES) for log in logs}
    table = Table("a loss goes back", *logs)
    for line in LINES:
        cells = (found[log][line] for log in logs)
        table.add_row(line, *(f"{c['efficiency']:.4f} ({c['hits']:,})" for c in cells))
    console.print(table)
    goals = {goal: is_met for log in logs for goal, is_met in verdicts(log, found[log]).items()}
    print(json.dumps({"benchmark": "replay-hits", "logs": found, "goals": goals}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
