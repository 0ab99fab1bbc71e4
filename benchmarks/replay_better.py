"""Compare the shipped allocator with the published formulation.

summit: hole ends unknown, event-driven. The published objective (120 s ahead) is compared with the
shipped defaults and an oracle that knows every hole end. planned: Theta and Curie, as `malleable
replay` plans them. Hole ends are unknown, known from the submission of the job that takes the node,
or all known. mix: objectives for seven models. No value is tuned for a log.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from parts.printing import SAY, Row, arguments, show, tell
from parts.replay_runs import RESCALES, SETTINGS, Run, label, measure, with_policy

SHOWN = ("efficiency", "images_per_s", "preemptions", "work_lost_node_s", "wall_s")


def _row(run: Run, name: str) -> Row:
    line = measure(run)
    SAY.print(f"{run.log}, {run.jobs} jobs, {label(run.rescale)}, {name}")
    row = {"log": run.log, "jobs": run.jobs, "rescale_s": label(run.rescale), "line": name}
    row |= {key: line[key] for key in SHOWN}
    return {**row, "solve_median_ms": line["solve_s"]["median"] * 1e3}


def summit() -> list[Row]:
    """Published, ours, oracle, with hole ends unknown to the first two."""
    rows = []
    for jobs in (10, 35):
        for rescale in RESCALES:
            for policy in ("equal", "optimum", "default", "oracle"):
                run = with_policy(Run("summit", policy, jobs, rescale), policy)
                rows.append(_row(run, policy))
    return rows


def planned() -> list[Row]:
    """The worth of the ends that Slurm publishes. Six weeks take about half an hour."""
    rows = []
    for log in ("theta_2022", "curie_2012_thin"):
        blind = Run(log, "default", 35, RESCALES[0], tick_s=SETTINGS.tick.every_s)
        rows.append(_row(blind, "unknown"))
        rows.append(_row(replace(blind, ends="planned"), "planned"))
        rows.append(_row(replace(blind, policy="oracle"), "oracle"))
    return rows


def mix() -> list[Row]:
    """Compare objectives with seven models, 35 jobs."""
    rows = []
    for name, policy, objective in (
        ("default", "default", ""),
        ("images/s objective", "default", "throughput"),
        ("published", "optimum", "throughput"),
        ("equal", "equal", ""),
    ):
        run = with_policy(Run("summit", policy, 35, RESCALES[0], queue="mix7"), policy)
        line = measure(replace(run, objective=objective))
        kept = {key: line[key] for key in ("images_per_s", "efficiency", "jobs_done")}
        rows.append({"line": name, **kept, "densenet_job_s": line["mean_job_s"].get("DenseNet")})
    return rows


TABLES = {"summit": summit, "planned": planned, "mix": mix}


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES), help="tables")
    tables: dict[str, Any] = {}
    for name in parser.parse_args().only:
        tables[name] = TABLES[name]()
        show(name, tables[name])
    return tell("replay-better", t_fwd_s=SETTINGS.plan.horizon_s, **tables)


if __name__ == "__main__":
    sys.exit(main())
