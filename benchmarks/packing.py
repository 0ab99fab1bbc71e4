"""Compare how long ordinary jobs of GPUs wait on Slurms with and without jobs on parts of nodes.

All Slurms get the same random rigid jobs at the same moments, in Poisson order: up to eight GPUs of
a node, or two to four whole nodes. A pool and two gangs of malleable fragments take the rest, on
each such Slurm with another headroom. Single delays vary in both directions, because a different
choice reorders the rest. So the waits of all jobs are compared too, with whole-node jobs
separately. A second Slurm without malleable jobs shows how far two equal Slurms differ on a busy
host.

The preemption is excessive if the fragments that left for a job had more GPUs than it got. The
goal: with the first headroom, jobs of whole nodes wait at most a second longer, at the median and
on average.
"""

from __future__ import annotations

import random
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Optional

from parts.live_slurm import CHEAP, SLEEPER, configure, submitted, ticks
from parts.printing import SAY, Row, arguments, show, tell

from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec
from slurm_hooks.settings.values import Planning

GPUS = 8
TICK_S = 3
KILL_WAIT_S = 2
LATE_S = 1.0
SHAPES = ((1, 1), (1, 2), (1, 3), (1, 4), (1, 6), (1, 8), (2, 8), (4, 8))  # nodes, GPUs of each
WEIGHTS = (30, 20, 5, 15, 5, 17, 5, 3)
REQUESTS = ("0-{half},unit=gpu,engine=pool", "2-{half},unit=gpu", "4-{half},unit=gpu")
WITHOUT = "without"
AGAIN = "without, again"
SIZED = re.compile(r"slots=(\d+)\} for JobId=\S*?(\d+)\)?$")
PREEMPTED = re.compile(r"preempted JobId=\S*?(\d+)\)? has been requeued .* for JobId=(\d+)")


@dataclass(frozen=True)
class Rigid:
    """An ordinary job: its submission time, its shape, and its run time."""

    at_s: float
    nodes: int
    gpus: int
    runs_s: float

    @property
    def is_whole(self) -> bool:
        """True if it wants whole nodes."""
        return self.gpus == GPUS

    @property
    def words(self) -> list[str]:
        """The options of sbatch for its size."""
        words = [f"--nodes={self.nodes}", f"--gres=gpu:{self.gpus}", "--ntasks-per-node=1"]
        return [*words, f"--cpus-per-task={self.gpus}"]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=180, help="of load")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of the load")
    parser.add_argument("--nodes", type=int, default=16, help="of each Slurm")
    parser.add_argument("--busy", type=float, default=0.8, help="share that ordinary jobs want")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two jobs")
    parser.add_argument("--headrooms", type=int, nargs="+", default=[Planning().headroom_gpus, 0])
    parser.add_argument("--lln", action="store_true", help="main spreads its jobs over the nodes")
    options = parser.parse_args()
    kinds = [WITHOUT, AGAIN, *(f"headroom {count}" for count in options.headrooms)]
    waits: dict[str, list[Optional[float]]] = {kind: [] for kind in kinds}
    jobs: list[Rigid] = []
    extra: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    for seed in options.seeds:
        load = list(arrivals(random.Random(seed), options))
        jobs += load
        with ExitStack() as stack:
            boxes = {kind: stack.enter_context(_up(kind, options)) for kind in kinds}
            for kind, asked in played(boxes, load, random.Random(seed)).items():
                waits[kind] += [_wait(boxes[kind], *each) for each in asked]
                wanted = {job: each.nodes * each.gpus for (job, _), each in zip(asked, load)}
                extra[kind].update(preempted(boxes[kind].log("slurmctld"), wanted))
    rows = [row for kind in kinds for row in rows_of(kind, jobs, waits)]
    show("seconds that ordinary jobs wait", rows)
    show("GPUs", [{"kind": kind, **extra[kind]} for kind in kinds[2:]])
    whole = {row["kind"]: row for row in rows if row["jobs"] == "whole nodes"}
    first, base = whole[kinds[2]], whole[WITHOUT]
    is_met = first["median"] <= base["median"] + LATE_S and first["mean"] <= base["mean"] + LATE_S
    gpus = {kind: dict(counts) for kind, counts in extra.items()}
    return tell("packing", is_met, **vars(options), rows=rows, gpus=gpus)


def arrivals(chance: random.Random, options: Any) -> Iterator[Rigid]:
    """The jobs, in the order of their submissions."""
    mean = sum(w * n * g for w, (n, g) in zip(WEIGHTS, SHAPES)) / sum(WEIGHTS)
    runs_s = options.busy * options.nodes * GPUS * options.every / mean
    at_s = 0.0
    while (at_s := at_s + chance.expovariate(1 / options.every)) < options.seconds:
        (shape,) = chance.choices(SHAPES, WEIGHTS)
        yield Rigid(at_s, *shape, round(runs_s * chance.choice((0.2, 0.5, 1.0, 2.3)), 1))


def _up(kind: str, options: Any) -> Sandbox:
    spec = project_spec(
        nodes=options.nodes, cpus=GPUS, memory_mib=64_000, gpus=GPUS, kill_wait_s=KILL_WAIT_S
    )
    box = Sandbox.up(spec)
    plan = "" if kind in (WITHOUT, AGAIN) else f"headroom_gpus = {kind.split()[1]}\n"
    configure(box, lease_s=120, notice_s=3, tick=f"every_s = {TICK_S}\n", plan=plan)
    if options.lln:
        conf = box.record.layout.conf
        text = conf.read_text()
        conf.write_text(text.replace("PartitionName=main ", "PartitionName=main LLN=YES "))
        box.run(["scontrol", "reconfigure"])
    return box


def played(
    boxes: dict[str, Sandbox], load: list[Rigid], chance: random.Random
) -> dict[str, list[tuple[str, float]]]:
    """The id of each job on each Slurm, and the time of its submission there."""
    asked: dict[str, list[tuple[str, float]]] = {kind: [] for kind in boxes}
    with ExitStack() as stack:
        for kind, box in boxes.items():
            if kind not in (WITHOUT, AGAIN):
                _fill(box)
                stack.enter_context(ticks(box, str(TICK_S)))
        time.sleep(3 * TICK_S)
        began = time.monotonic()
        for number, job in enumerate(load):
            time.sleep(max(0.0, job.at_s - (time.monotonic() - began)))
            for kind in chance.sample(list(boxes), len(boxes)):  # neither is always the first
                asked[kind].append(_submit(boxes[kind], job))
            if number % 50 == 0:
                SAY.print(f"{number} jobs after {time.monotonic() - began:.0f} s")
        time.sleep(max(job.runs_s for job in load))
    return asked


def _fill(box: Sandbox) -> None:
    (box.work / "job.sh").write_text(SLEEPER.replace("exec", f"{CHEAP}exec"))
    half = len(box.nodes) * GPUS // 2
    for request in REQUESTS:
        submitted(box, f"--malleable={request.format(half=half)}", "-o/dev/null", "job.sh")


def _submit(box: Sandbox, job: Rigid) -> tuple[str, float]:
    note = f"date +%s.%N >{box.work}/start-$SLURM_JOB_ID; exec sleep {job.runs_s}"
    words = ["-pmain", "-t2", "-o/dev/null", *job.words, f"--wrap={note}"]
    at = time.time()
    return submitted(box, *words), at


def _wait(box: Sandbox, job: str, at: float) -> Optional[float]:
    """The job's wait, or None if it has not started in time."""
    path = box.work / f"start-{job}"
    text = path.read_text().strip() if path.exists() else ""
    return float(text) - at if text else None


def preempted(log: str, wanted: dict[str, int]) -> Counter[str]:
    """The preempted GPUs, and the part of them beyond the GPUs of the jobs that preempted."""
    sizes: dict[str, int] = {}
    lost: Counter[str] = Counter()
    for line in log.splitlines():
        if match := PREEMPTED.search(line):
            lost[match[2]] += sizes.get(match[1], 0)
        elif match := SIZED.search(line):
            sizes[match[2]] = int(match[1])
    beyond = sum(max(0, count - wanted.get(job, count)) for job, count in lost.items())
    return Counter(preempted=sum(lost.values()), beyond=beyond, jobs=len(lost))


def rows_of(kind: str, jobs: list[Rigid], waits: dict[str, list[Optional[float]]]) -> Iterator[Row]:
    """The rows of a Slurm: waits of parts and of whole nodes, and delays compared with no
    fragments.
    """
    for name, is_whole in (("parts", False), ("whole nodes", True)):
        pairs = [
            (own, base)
            for job, own, base in zip(jobs, waits[kind], waits[WITHOUT])
            if job.is_whole is is_whole and own is not None and base is not None
        ]
        own = sorted(pair[0] for pair in pairs)
        delays = sorted(a - b for a, b in pairs)
        yield {
            "kind": kind,
            "jobs": name,
            "n": len(pairs),
            "median": round(statistics.median(own), 2),
            "p90": round(own[len(own) * 9 // 10], 2),
            "max": round(own[-1], 2),
            "mean": round(statistics.mean(own), 2),
            "delay_median": round(statistics.median(delays), 2),
            "delay_p90": round(delays[len(delays) * 9 // 10], 2),
            "delay_max": round(delays[-1], 2),
            "later_than_1_s": sum(d > LATE_S for d in delays),
            "sooner_than_1_s": sum(d < -LATE_S for d in delays),
        }


if __name__ == "__main__":
    sys.exit(main())
