"""One look at a Slurm with tens of thousands of jobs: by its commands, and by libslurm.

    make bench-library BENCH_ARGS="--jobs 50000 --looks 5"

Three kinds of queue: array elements that are still one record; a record for each; and that with
malleable jobs among them. Seconds and CPU seconds of a look (with what it starts), CPU seconds
of slurmctld, and the ratio.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from live_slurm import controller_cpu_s

from slurm_hooks.sandbox import Sandbox, SandboxSpec
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.slurm.library import WithLibrary
from slurm_hooks.slurm.live import Live, Port

ARRAY = 1000
MARK = "malleable{min=1,max=6,unit=1,engine=torchrun,frags=64,lease=120,hole=60}"


@dataclass(frozen=True)
class Look:
    """What one look cost, in seconds, and how many records it saw."""

    wall_s: float
    cpu_s: float
    controller_s: float
    records: int
    commands: tuple[str, ...]


def own_cpu_s() -> float:
    """CPU seconds of this process and of those it has waited for."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(u.ru_utime + u.ru_stime for u in used)


def look(box: Sandbox, port: Port) -> Look:
    """Observes once."""
    before, controller, began = own_cpu_s(), controller_cpu_s(box), time.monotonic()
    seen = observe(port, ["malleable"])
    wall_s = time.monotonic() - began
    commands = tuple(Path(asked.argv[0]).name for asked in port.asked)
    cpu_s = own_cpu_s() - before
    return Look(wall_s, cpu_s, controller_cpu_s(box) - controller, seen.records, commands)


def submit(box: Sandbox, partition: str, count: int) -> str:
    """A held array; its id."""
    argv = ["sbatch", "--parsable", "--hold", "-p", partition, f"--array=0-{count - 1}", "--time=5"]
    argv += ["-N1", "--output=/dev/null", "--wrap=true"]
    return box.run(argv).stdout.strip()


def split(box: Sandbox, job: str, count: int, *change: str) -> None:
    """Gives each element a record of its own; all at once they would stay one."""
    for elements in (f"0-{count // 2}", f"{count // 2 + 1}-{count - 2}", f"{count - 1}"):
        box.run(["scontrol", "update", f"JobId={job}_[{elements}]", *change], timeout_s=120)


def records(box: Sandbox) -> int:
    """How many records slurmctld has of all jobs."""
    said = box.run(["scontrol", "--oneliner", "show", "jobs"], timeout_s=120).stdout
    return len(said.splitlines())


def medians(box: Sandbox, looks: int) -> dict[str, Look]:
    """The middle look of several, by kind."""
    found = {}
    for kind in ("commands", "pyslurm"):
        live = Live(120.0, environment=dict(box.environment))
        ports = [live if kind == "commands" else WithLibrary(live) for _ in range(looks)]
        taken = []
        for port in ports:
            port.asked.clear()
            taken.append(look(box, port))
        found[kind] = Look(
            *(statistics.median(getattr(t, n) for t in taken) for n in ("wall_s", "cpu_s")),
            statistics.median(t.controller_s for t in taken),
            taken[0].records,
            taken[0].commands,
        )
    return found


def show(box: Sandbox, what: str, found: dict[str, Look]) -> None:
    """One row of the table."""
    a, b = found["commands"], found["pyslurm"]
    pairs = [(a.wall_s, b.wall_s), (a.cpu_s, b.cpu_s), (a.controller_s, b.controller_s)]
    cells = [f"{x:.2f} / {y:.2f} = {x / y if y else 0:.1f}" for x, y in pairs]
    count = f"{a.records} in {records(box)} ({'+'.join(b.commands)})"
    print(f"| {what}, {count} | {' | '.join(cells)} |", flush=True)
    assert a.records == b.records


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--looks", type=int, default=5)
    chosen = parser.parse_args()
    conf = "MaxJobCount=200000\nMaxArraySize=1001\nMessageTimeout=60\n"
    with Sandbox.up(SandboxSpec(nodes=8, extra_conf=conf)) as box:
        print(f"Slurm {box.record.slurm.version_text}; commands / pyslurm = ratio")
        print("| queue | seconds | CPU seconds | CPU seconds of slurmctld |\n|---|---|---|---|")
        jobs = [submit(box, "main", ARRAY) for _ in range(chosen.jobs // ARRAY)]
        show(box, "one record for 1,000 elements", medians(box, chosen.looks))
        for job in jobs:
            split(box, job, ARRAY, "TimeLimit=6")
        show(box, "a record each", medians(box, chosen.looks))
        for _ in range(8):
            split(box, submit(box, "malleable", 64), 64, f"AdminComment={MARK}")
        show(box, "8 malleable jobs of 64 among them", medians(box, chosen.looks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
