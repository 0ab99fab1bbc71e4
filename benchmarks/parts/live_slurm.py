"""A real Slurm as benchmarks use it: quick settings, jobs, ticks, and waiting."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from slurm_hooks.sandbox import Sandbox
from slurm_hooks.settings.file import load
from slurm_hooks.slurm.live import Live
from slurm_hooks.tick import reconcile
from slurm_hooks.tick.report import TickReport

T = TypeVar("T")
PATIENCE_S = 120.0
CLOCK = os.sysconf("SC_CLK_TCK")
FRAGMENTS = 64  # of a malleable job, as sites ship
SLEEPER = "#!/bin/bash\nexec sleep 3600\n"
SETTINGS = """
[lease]
length_s = {lease_s}
shortest_hole_s = 60
margin_s = 35
notice_s = {notice_s}

[plan]
snooze_s = 0
"""
# For a job's script, the report of an agent: it trains, and an interruption costs a second's work.
CHEAP = """job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
scontrol update jobid=$job "comment=trained{${SLURM_RESTART_COUNT:-0}};h{1}"
"""


def configure(
    box: Sandbox, lease_s: int = 600, notice_s: int = 3, tick: str = "", plan: str = ""
) -> None:
    """Write settings under which nodes change hands quickly. `tick` and `plan` are lines for these
    tables."""
    text = box.settings.read_text().replace("[tick]\n", f"[tick]\n{tick}")
    box.settings.write_text(text + SETTINGS.format(lease_s=lease_s, notice_s=notice_s) + plan)


def port(box: Sandbox) -> Live:
    """Return the port of this Slurm."""
    return Live(environment={**os.environ, **box.environment})


def tick(box: Sandbox) -> TickReport:
    """Run a tick in this process."""
    return reconcile.tick(port(box), load(box.settings))


@contextmanager
def ticks(box: Sandbox, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a loop of ticks. It writes to `ticks.log`. Return its process."""
    argv = [sys.executable, "-m", "slurm_hooks.cli", "reconcile", "--loop", *words]
    environment = {**os.environ, **box.environment}
    with (box.work / "ticks.log").open("w") as log:
        process = subprocess.Popen(argv, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()


def controller(box: Sandbox) -> int:
    """Return the process id of slurmctld."""
    return int((box.dir / "run" / "slurmctld.pid").read_text())


def controller_cpu_s(box: Sandbox) -> float:
    """Return slurmctld's processor seconds so far."""
    fields = Path(f"/proc/{controller(box)}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK


def submitted(box: Sandbox, *words: str) -> str:
    """Submit a job. Return its id."""
    return box.run(["sbatch", "--parsable", *words], cwd=box.work).stdout.strip()


def fill(box: Sandbox, nodes: int, unit: int = 1) -> None:
    """Submit malleable jobs that want all these nodes, `unit` for each fragment."""
    (box.work / "filler").write_text(SLEEPER)
    most = min(FRAGMENTS * unit, nodes)
    wanted = f"--malleable={unit}-{most}" + (f",unit={unit}" if unit > 1 else "")
    for _ in range(-(-nodes // most)):
        submitted(box, wanted, "--output=/dev/null", "filler")


def held_nodes(box: Sandbox, partition: str) -> int:
    """Return the number of nodes of the running jobs of a partition."""
    words = ["squeue", "-h", "--array", f"--partition={partition}", "--states=R", "-o%D"]
    return sum(map(int, box.run(words).stdout.split()))


def empty(box: Sandbox, partition: str, nodes: int) -> None:
    """Cancel all jobs, and wait until as many nodes of the partition are free."""
    for name in (partition, "main"):
        for words in (["--full"], []):  # a thousand jobs take longer than a command may otherwise
            argv = ["scancel", f"--partition={name}", *words]
            box.run(argv, check=False, timeout_s=PATIENCE_S)
    await_(lambda: not box.run(["squeue", "-h"]).stdout.strip(), "an empty Slurm")
    idle = ["sinfo", "-h", "-t", "idle", "-o", "%D", "-p", partition]
    await_(lambda: box.run(idle).stdout.strip() == str(nodes), "free nodes")


def await_(look: Callable[[], T], what: str, every_s: float = 0.1) -> T:
    """Return the first true value of `look`. Raise TimeoutError."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE_S:.0f} s for {what}")
        time.sleep(every_s)
    return value
