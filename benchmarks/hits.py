"""What a hit costs: `make bench-hits BENCH_ARGS="--hits 10"`.

A hit is Slurm's own preemption: an ordinary job comes and takes nodes on which a malleable job
trains; it has all four. For each training: steps done twice and samples lost or seen twice (from
the script's own log), the pause (the longest time that a survivor went without finishing a step),
and how long the ordinary job waited from its submission to the first line of its script, beside
the same job at the same moment on an empty Slurm of its own; and of that, how long slurmctld waited
for the nodes from its decision on, by its own log. Both also for a node with nothing but a `sleep`:
that much is Slurm's. Ticks run at their own pace and give the node back when the ordinary job has
ended.

Prints progress and a table of medians (and worst); the last line is one JSON object. A training
whose library is missing is left out; $HITS_PYTHON names an interpreter that has them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hits_log import HitLog, freeing, samples
from hits_trainings import TRAININGS, Training, lacks, lay_out
from live_slurm import await_, configure, ticks
from rich.console import Console
from rich.table import Table

from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec
from slurm_hooks.sandbox.spec import SandboxSpec

NODES = 4
IDLE_S = 2.0  # a worker that imports uses a processor in any such time, also on a busy host
STAY_S = 6  # how long the ordinary job keeps its nodes; a requeued fragment needs as long


@dataclass(frozen=True)
class Hit:
    """What one hit cost: steps done twice, seconds of pause, seconds that the ordinary job waited
    with and without us, and from the preemption to its allocation; `step_s` is an ordinary step
    of the survivors afterwards."""

    nodes: int
    again: int
    pause_s: float
    step_s: float
    wait_s: float
    empty_s: float
    freeing_s: float
    load: float

    @property
    def delay_s(self) -> float:
        return self.wait_s - self.empty_s


@dataclass(frozen=True)
class Sleep:
    """Of a node with nothing but a `sleep`: the ordinary job's delay, and of that the time from the
    preemption to its allocation; seconds."""

    delay_s: float
    freeing_s: float


@dataclass
class Found:
    """All of one training."""

    hits: list[Hit] = field(default_factory=list)
    samples_again: int = 0
    samples_lost: int = 0
    failed: str = ""


class Course:
    """One training on a Slurm, hit by ordinary jobs."""

    def __init__(self, box: Sandbox, twin: Sandbox, chance: random.Random, rest_s: float) -> None:
        self._box, self._twin, self._chance = box, twin, chance
        self._rest_s = rest_s
        self._log = HitLog(box.work)
        self._number = 0

    def hit(self, nodes: int) -> Hit:
        """Live through one. Raises TimeoutError if the training does not go on."""
        self._until(NODES, 0.0)
        await_(lambda: warm(self._box) >= NODES, "warm workers")
        time.sleep(self._rest_s + self._chance.uniform(0, 1))
        taken = sorted(self._chance.sample(self._box.nodes, nodes))
        empty_s, _ = self._arrive(self._twin, taken, 0)
        asked = time.time()
        wait_s, job = self._arrive(self._box, taken, STAY_S)
        survivors = self._until(NODES - nodes, asked)
        settled = time.time()
        log = self._log.read()
        cost = Hit(
            nodes,
            log.again(asked, settled),
            round(log.pause(survivors, asked - 0.5, settled), 3),
            round(log.ordinary(survivors[0], settled - 1.0, settled), 3),
            round(wait_s, 3),
            round(empty_s, 3),
            freeing(self._box.log("slurmctld"), job),
            os.getloadavg()[0],
        )
        self._until(NODES, settled)
        return cost

    def preempt_sleep(self, nodes: int) -> Sleep:
        """The same for an ordinary job on nodes that have a `sleep` each."""
        taken = sorted(self._chance.sample(self._box.nodes, nodes))
        for node in taken:
            argv = ["sbatch", "-p", "malleable", f"--nodelist={node}", "--exclusive", "--time=5"]
            self._box.run([*argv, "--no-requeue", "--output=/dev/null", "--wrap=exec sleep 99"])
        running = ["squeue", "-h", "-p", "malleable", "-t", "R", "-o", "%N"]
        await_(lambda: len(self._box.run(running).stdout.split()) == nodes, "the sleeps")
        time.sleep(2 + self._chance.uniform(0, 1))
        empty_s, _ = self._arrive(self._twin, taken, 0)
        wait_s, job = self._arrive(self._box, taken, 0)
        await_(lambda: not self._box.run(["squeue", "-h"]).stdout.strip(), "an empty Slurm")
        return Sleep(wait_s - empty_s, freeing(self._box.log("slurmctld"), job))

    def _until(self, size: int, since: float) -> list[str]:
        """Wait for that many that train together; gives them."""

        def found() -> list[str]:
            each = self._log.read().training(size, since)
            return each if len(each) == size else []

        return await_(found, f"{size} that train together")

    def _arrive(self, box: Sandbox, nodes: Sequence[str], stay_s: int) -> tuple[float, str]:
        """Submit an ordinary job for these nodes; seconds until its script began, its id."""
        self._number += 1
        mark = box.work / f"arrived-{self._number}"
        argv = ["sbatch", "--parsable", "-p", "main", f"--nodes={len(nodes)}", "--exclusive"]
        argv += ["--time=1", f"--nodelist={','.join(nodes)}", "--output=/dev/null"]
        argv += [f"--wrap=date +%s.%N >{mark}.new; mv {mark}.new {mark}; exec sleep {stay_s}"]
        asked = time.time()
        job = box.run(argv).stdout.strip()
        await_(mark.exists, "the ordinary job's start")
        return float(mark.read_text()) - asked, job


def floor(hits: int, say: Console) -> list[Sleep]:
    """What Slurm itself takes to preempt a `sleep`."""
    spec, sleeps, chance = SandboxSpec(nodes=NODES, kill_wait_s=5), [], random.Random(1)
    with Sandbox.up(spec) as box, Sandbox.up(spec) as twin:
        course = Course(box, twin, chance, 0.0)
        for number in range(hits):
            sleeps.append(course.preempt_sleep(1 + number % 2))
            say.print(f"sleep: {sleeps[-1]}, load {os.getloadavg()[0]:.0f}")
    return sleeps


def run(training: Training, options: argparse.Namespace, say: Console) -> Found:
    """One training through all its hits, on a Slurm of its own beside an empty one."""
    found = Found()
    chance = random.Random(1)
    spec = project_spec(nodes=NODES, kill_wait_s=5)
    with Sandbox.up(spec) as box, Sandbox.up(spec) as twin:
        configure(box)
        batch = lay_out(training, box.work)
        out = box.work / "out.log"
        with ticks(box):
            box.run(["sbatch", f"--malleable=1-{NODES}", f"--output={out}", str(batch)])
            course = Course(box, twin, chance, options.rest)
            try:
                for number in range(options.hits):
                    found.hits.append(course.hit(1 + number % 2))
                    say.print(f"{training.label}: {_words(found.hits[-1])}")
            except TimeoutError as error:
                found.failed = str(error)
                say.print(f"{training.label}: given up: {error}", markup=False)
                say.print(_tail(out), _tail(box.work / "ticks.log"), sep="\n", markup=False)
        seen = samples(HitLog(box.work, "takes").read(), HitLog(box.work).read())
        if options.logs:
            shutil.copytree(box.work, options.logs / training.script, dirs_exist_ok=True)
        found.samples_again, found.samples_lost = seen.repeated, seen.lost
    return found


def warm(box: Sandbox) -> int:
    """How many workers wait, their imports done: alive, and using no processor for a while."""
    before = _waiting(box)
    time.sleep(IDLE_S)
    after = _waiting(box)
    return sum(before.get(pid) == used for pid, used in after.items())


def _waiting(box: Sandbox) -> dict[int, str]:
    """Processor time by process of the workers of this sandbox, at work or not."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_worker = b"warm_worker as warm" in (entry / "cmdline").read_bytes()
            if is_worker and str(box.dir).encode() in (entry / "environ").read_bytes():
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                found[int(entry.name)] = f"{words[11]} {words[12]}"
    return found


def _words(hit: Hit) -> str:
    return (
        f"{hit.nodes} of {NODES} taken: {hit.again} steps again, pause {hit.pause_s:.2f} s "
        f"(a step {hit.step_s:.2f} s), waited {hit.wait_s:.2f} s, on the empty Slurm "
        f"{hit.empty_s:.2f} s, nodes free after {hit.freeing_s:.2f} s, load {hit.load:.0f}"
    )


def _tail(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return "\n".join((f"-- {path.name}", *lines[-25:]))


def of(values: list[float]) -> str:
    """Median and worst."""
    return f"{statistics.median(values):.2f} ({max(values):.2f})"


def row(training: Training, found: Found) -> dict[str, object]:
    """One line of the table."""
    hits, again = found.hits, [hit.again for hit in found.hits]
    return {
        "training": training.label,
        "hits": len(hits),
        "steps again": f"{statistics.median(again):g} ({max(again)})",
        "samples again, lost": f"{found.samples_again}, {found.samples_lost}",
        "pause s": of([h.pause_s for h in hits]),
        "step s": f"{statistics.median(h.step_s for h in hits):.2f}",
        "waited s": of([h.wait_s for h in hits]),
        "on an empty Slurm s": of([h.empty_s for h in hits]),
        "delay s": of([h.delay_s for h in hits]),
        "nodes free after s": of([h.freeing_s for h in hits]),
    }


def show(rows: list[dict[str, object]], say: Console) -> None:
    """The table."""
    table = Table(*rows[0], title="What a hit costs: median (worst)")
    for each in rows:
        table.add_row(*map(str, each.values()))
    say.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hits", type=int, default=10, help="of each training")
    parser.add_argument("--trainings", nargs="+", choices=TRAININGS, default=list(TRAININGS))
    parser.add_argument("--logs", type=Path, help="a directory that is to keep what jobs said")
    parser.add_argument(
        "--rest", type=float, default=1.0, help="seconds between warm workers and a hit"
    )
    options = parser.parse_args()
    say = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else 160)
    found: dict[str, Found] = {}
    sleeps = floor(options.hits, say)
    for name in options.trainings:
        if lacks(TRAININGS[name]):
            say.print(f"{TRAININGS[name].label}: left out, for want of {TRAININGS[name].needs}")
            continue
        found[name] = run(TRAININGS[name], options, say)
    if rows := [row(TRAININGS[name], each) for name, each in found.items() if each.hits]:
        show(rows, say)
    delays, freed = [s.delay_s for s in sleeps], [s.freeing_s for s in sleeps]
    say.print(f"where a node has but a sleep: delay {of(delays)} s, free after {of(freed)} s")
    print(
        json.dumps(
            {
                "benchmark": "hits",
                "sleep": [asdict(each) for each in sleeps],
                **{name: asdict(each) for name, each in found.items()},
            }
        )
    )
    return 1 if any(each.failed for each in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
