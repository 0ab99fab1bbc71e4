"""Measure the cost of a tick.

* decisions: plan and guard a large machine.
* learned: the additional cost of learned jobs.
* whole: a tick there from text to text, within 2 s and 300 MiB.
* shared: the same where jobs share nodes of 8 GPUs, within 2.5 s and 400 MiB.
* slurm: ticks on a real Slurm with many jobs in the queue (seconds, commands, RPCs).
"""

from __future__ import annotations

import sys
import time
from typing import Any

from parts.live_slurm import controller_cpu_s, fill, tick
from parts.printing import Row, arguments, middle, show, tell
from parts.tick_learned import learned_costs
from parts.tick_plan import costs
from parts.tick_whole import is_quick, is_quick_where_shared, shared_ticks, whole_ticks

from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec

PARTS = ("decisions", "learned", "whole", "shared", "slurm")
TICKS = 7
IDLE_S = 5.0
HALF = 500  # of the largest array


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to run")
    parser.add_argument("--rigid", type=int, default=2000, help="pending jobs of others")
    parser.add_argument("--malleable", type=int, default=20, help="jobs of 16 fragments each")
    options = parser.parse_args()
    parts: dict[str, Any] = {}
    if "decisions" in options.only:
        parts["decisions"] = costs()
        show("processor seconds of the decisions", parts["decisions"])
    if "learned" in options.only:
        parts["learned"] = learned_costs()
        show("processor milliseconds with learned jobs", [parts["learned"]])
    if "whole" in options.only:
        parts["whole"] = whole_ticks()
        show("processor seconds of a whole tick", parts["whole"])
    if "shared" in options.only:
        parts["shared"] = shared_ticks()
        show("processor seconds of a whole tick on shared nodes", parts["shared"])
    if "slurm" in options.only:
        spec = project_spec(nodes=16, extra_conf="MaxJobCount=300000\n")
        with Sandbox.up(spec) as box:
            parts["slurm"] = measure(box, options.rigid, options.malleable)
        show("a tick on a real Slurm", [parts["slurm"]])
    is_fine = "whole" not in parts or is_quick(parts["whole"])
    is_fine = is_fine and ("shared" not in parts or is_quick_where_shared(parts["shared"]))
    return tell("tick", is_fine, **parts)


def measure(box: Sandbox, rigid: int, malleable: int) -> Row:
    """Fill the queue, then time ticks that only read."""
    _queue(box, rigid)
    for _ in range(malleable):
        fill(box, 16)
    first = tick(box)
    time.sleep(3)
    used = controller_cpu_s(box)
    time.sleep(IDLE_S)
    idle_s = (controller_cpu_s(box) - used) / IDLE_S
    used, began = controller_cpu_s(box), time.monotonic()
    reports = [tick(box) for _ in range(TICKS)]
    used, took_s = controller_cpu_s(box) - used, time.monotonic() - began
    reads = [a for r in reports for a in r.asked]
    return {
        "jobs_of_others": rigid,
        "malleable_jobs": malleable,
        "fragments": 16 * malleable,
        "first_tick_s": round(first.seconds, 3),
        "first_tick_rpcs": first.rpcs,
        "tick_s": middle(r.seconds for r in reports),
        "rpcs": middle(r.rpcs for r in reports),
        "commands": middle(len(r.asked) for r in reports),
        "slurm_s": round(sum(a.seconds for a in reads) / len(reports), 3),
        "slurmctld_cpu_s": round((used - idle_s * took_s) / TICKS, 4),
        "slurmctld_idle_cpu": round(idle_s, 4),
        "solver_s": middle(r.plan.solve.seconds for r in reports),
    }


def _queue(box: Sandbox, jobs: int) -> None:
    """Submit so many pending jobs of others, each with a record in slurmctld.

    slurmctld keeps a common record for all untouched elements of an array, so every second element
    is touched.
    """
    hold = ["sbatch", "-p", "main", "--hold", "--wrap", "sleep 1", "--output=/dev/null"]
    for _ in range(jobs // HALF):
        words = [*hold, "--parsable", f"--array=0-{2 * HALF - 1}"]
        job_id = box.run(words).stdout.strip()
        some = ",".join(map(str, range(0, 2 * HALF, 2)))
        box.run(["scontrol", "update", f"jobid={job_id}_[{some}]", "TimeLimit=10"])


if __name__ == "__main__":
    sys.exit(main())
