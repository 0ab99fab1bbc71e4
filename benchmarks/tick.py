"""What a tick costs: its decisions on a large machine, what learned jobs add to them, a whole tick
there from text to text, then whole ticks on a real Slurm with many jobs in the queue (seconds,
commands, RPCs).

Run: python benchmarks/tick.py [--rigid N] [--malleable N]; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import asdict

from live_slurm import controller_cpu_s
from tick_learned import learned_costs, learned_lines
from tick_plan import costs, table
from tick_whole import lines, whole_ticks

from slurm_hooks.reconcile import tick
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec
from slurm_hooks.settings_file import load
from slurm_hooks.slurm.live import Live

TICKS = 7
IDLE_S = 5.0
HALF = 500  # of the largest array


def main() -> None:
    parser = argparse.ArgumentParser(description="What a tick costs.")
    parser.add_argument("--rigid", type=int, default=2000, help="pending jobs of others")
    parser.add_argument("--malleable", type=int, default=20, help="jobs of 16 fragments each")
    options = parser.parse_args()
    decisions = costs()
    print(table(decisions))
    learned = learned_costs()
    print(learned_lines(learned))
    whole = whole_ticks()
    print(lines(whole))
    with Sandbox.up(project_spec(nodes=16, extra_conf="MaxJobCount=300000\n")) as box:
        result = measure(box, options.rigid, options.malleable)
    print(
        json.dumps(
            {
                **result,
                "decisions": [asdict(cost) for cost in decisions],
                "learned": learned,
                "whole": whole,
            }
        )
    )


def measure(box: Sandbox, rigid: int, malleable: int) -> dict[str, object]:
    """Fill the queue, then time ticks that only look, and squeue beside them."""
    _queue(box, rigid)
    script = box.work / "job.sh"
    script.write_text("#!/bin/bash\nexec sleep 600\n")
    for _ in range(malleable):
        box.run(["sbatch", "--malleable=1-16", "--output=/dev/null", str(script)])
    settings, port = load(box.settings), Live(environment={**os.environ, **box.environment})
    first = tick(port, settings)
    time.sleep(3)
    used = controller_cpu_s(box)
    time.sleep(IDLE_S)
    idle_s = (controller_cpu_s(box) - used) / IDLE_S
    used, began = controller_cpu_s(box), time.monotonic()
    reports = [tick(port, settings) for _ in range(TICKS)]
    used, took_s = controller_cpu_s(box) - used, time.monotonic() - began
    reads = [a for r in reports for a in r.asked]
    return {
        "jobs_of_others": rigid,
        "malleable_jobs": malleable,
        "fragments": 16 * malleable,
        "first_tick_s": round(first.seconds, 3),
        "first_tick_rpcs": first.rpcs,
        "tick_s": round(statistics.median(r.seconds for r in reports), 3),
        "rpcs": statistics.median(r.rpcs for r in reports),
        "commands": statistics.median(len(r.asked) for r in reports),
        "slurm_s": round(sum(a.seconds for a in reads) / len(reports), 3),
        "slurmctld_cpu_s": round((used - idle_s * took_s) / TICKS, 4),
        "slurmctld_idle_cpu": round(idle_s, 4),
        "solver_s": round(statistics.median(r.plan.solve.seconds for r in reports), 3),
    }


def _queue(box: Sandbox, jobs: int) -> None:
    """So many pending jobs of others, each with a record of its own: of an array slurmctld keeps
    and tells one for all elements that nobody has touched, so every second one is touched."""
    hold = ["sbatch", "-p", "main", "--hold", "--wrap", "sleep 1", "--output=/dev/null"]
    for _ in range(jobs // HALF):
        words = [*hold, "--parsable", f"--array=0-{2 * HALF - 1}"]
        job_id = box.run(words).stdout.strip()
        some = ",".join(map(str, range(0, 2 * HALF, 2)))
        box.run(["scontrol", "update", f"jobid={job_id}_[{some}]", "TimeLimit=10"])


if __name__ == "__main__":
    main()
