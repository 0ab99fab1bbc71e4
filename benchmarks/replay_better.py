"""What the allocator that ships gains over the published formulation: `make bench-replay-better`.

Three tables. Summit, hole ends unknown, event-driven: published objective (120 s ahead) against
the defaults that ship, an oracle that knows every hole end, and rescales priced by age. Theta and
Curie, with the reconciler's tick, latency and leases: hole ends unknown, known from the submission
of the job that takes the node, and all known. The seven-model mix: objectives. Nothing is tuned per
log. Prints the tables, and one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import Any

from replay_runs import RESCALES, SETTINGS, Run, label, measure, with_policy
from rich.console import Console
from rich.table import Table

SHOWN = ("efficiency", "images_per_s", "preemption_hits", "work_lost_node_s", "wall_s")
console = Console(stderr=True, width=140)


def _row(run: Run, name: str, line: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "log": run.log,
        "jobs": run.jobs,
        "rescale_s": label(run.rescale),
        "line": name,
        **{key: line[key] for key in SHOWN},
        "solve_median_ms": line["solve_s"]["median"] * 1e3,
    }
    console.print(_shown(row))
    return row


def _shown(row: dict[str, Any]) -> str:
    values = (f"{v:.4g}" if isinstance(v, float) and v > 2 else f"{v}"[:6] for v in row.values())
    return "  ".join(values)


def summit() -> list[dict[str, Any]]:
    """Published, ours, oracle, with hole ends unknown to the first two."""
    rows = []
    for jobs in (10, 35):
        for rescale in RESCALES:
            for policy in ("equal", "optimum", "default", "oracle"):
                run = with_policy(Run("summit", policy, jobs, rescale), policy)
                rows.append(_row(run, policy, measure(run)))
            sia = Run("summit", "default", jobs, rescale, is_amortised=True)
            rows.append(_row(sia, "amortised", measure(sia)))
    return rows


def planned() -> list[dict[str, Any]]:
    """What the ends that Slurm publishes are worth."""
    rows = []
    for log in ("theta_2022", "curie_2012_thin"):
        for rescale in RESCALES:
            blind = Run(log, "default", 35, rescale, tick_s=SETTINGS.tick.every_s)
            rows.append(_row(blind, "unknown", measure(blind)))
            rows.append(_row(blind, "planned", measure(replace(blind, ends="planned"))))
            rows.append(_row(blind, "oracle", measure(replace(blind, policy="oracle"))))
    return rows


def mix() -> dict[str, Any]:
    """Objectives with seven models, 35 jobs."""
    lines = {}
    for name, policy, objective in (
        ("default", "default", ""),
        ("images/s objective", "default", "throughput"),
        ("published", "optimum", "throughput"),
        ("equal", "equal", ""),
    ):
        run = with_policy(Run("summit", policy, 35, RESCALES[0], queue="mix7"), policy)
        line = measure(replace(run, objective=objective))
        lines[name] = {
            "images_per_s": line["images_per_s"],
            "efficiency": line["efficiency"],
            "mean_job_s": line["mean_job_s"],
            "jobs_done": line["jobs_done"],
        }
    table = Table("line", "images/s", "jobs done", "DenseNet mean job, s")
    for name, found in lines.items():
        slow = found["mean_job_s"].get("DenseNet")
        table.add_row(
            name,
            f"{found['images_per_s']:,.0f}",
            f"{found['jobs_done']:,}",
            "none finished" if slow is None else f"{slow:,.0f}",
        )
    console.print(table)
    return lines


def main() -> int:
    """Run the tables that were asked for, all by default."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="*", help="summit, planned, mix (default: all)")
    chosen = parser.parse_args().tables or ["summit", "planned", "mix"]
    made = {"summit": summit, "planned": planned, "mix": mix}
    found = {name: made[name]() for name in chosen}
    print(json.dumps({"benchmark": "replay-better", "t_fwd_s": SETTINGS.plan.horizon_s, **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
