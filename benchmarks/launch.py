"""How long many fragments take to start: `make bench-launch BENCH_ARGS="--nodes 512"`.

A sandbox of so many nodes, a real Slurm; in turns, the same script on every node: a plain array
that Slurm starts by itself; one that was held and is released with one command; gangs of 64
fragments that one tick releases, a node each; and a pool of one worker a node. Counted is the time
until the last has written its first line, of ours from the tick's first write: what a tick reads
and decides is a row of its own. Processor seconds are slurmctld's. And how many processes a node
starts: as many at once as a node of the projection has cores, told for 512 nodes of 64.

Prints two tables; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from live_slurm import await_, configure, controller_cpu_s, empty, submitted
from rich.console import Console
from rich.table import Table

from slurm_hooks.reconcile import tick
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec
from slurm_hooks.settings_file import load
from slurm_hooks.slurm.live import Live

FRAGMENTS = 64  # of a gang, as sites ship
GOAL = 1.2  # times a plain array
PROJECTED, CORES = 512, 64  # nodes and cores of each; LLSC: 32,000 processes in 4 s
PATIENCE_S = 300.0
SCRIPT = """#!/bin/bash
echo "$(date +%s.%N)" >starts/$SLURM_JOB_ID
exec sleep 600
"""
SETTINGS = """
[request]
max_fragments = {nodes}
max_array_size = {most}
"""


@dataclass(frozen=True)
class Launch:
    """Seconds until the last has started; of these, before the first write; slurmctld's own."""

    seconds: float
    before_s: float
    controller_s: float
    rpcs: int = 1


class Run:
    """One Slurm on which arrays, gangs and pools are started in turn."""

    def __init__(self, box: Sandbox, nodes: int) -> None:
        self._box, self._nodes = box, nodes
        self._starts = box.work / "starts"
        self._script = box.work / "worker.sh"
        self._script.write_text(SCRIPT)

    def array(self) -> Launch:
        """From sbatch to the last start of a plain array."""
        return self._timed(lambda: self._submit("--partition=malleable", self._whole()))

    def held_array(self) -> Launch:
        """The same from the release of one that was held."""
        job = self._submit("--partition=malleable", self._whole(), "--hold")
        return self._timed(lambda: self._box.run(["scontrol", "release", job]))

    def gangs(self) -> Launch:
        """Jobs of 64 fragments, released by one tick."""
        for _ in range(-(-self._nodes // FRAGMENTS)):
            self._submit(f"--malleable=1-{min(FRAGMENTS, self._nodes)}", "--time=10")
        return self._by_tick()

    def pool(self) -> Launch:
        """One pool of a worker a node."""
        self._submit(f"--malleable=1-{self._nodes},engine=pool", "--time=10")
        return self._by_tick()

    def _by_tick(self) -> Launch:
        port = Live(environment={**os.environ, **self._box.environment})
        settings, began = load(self._box.settings), time.time()
        first: list[float] = []

        def see(words: str) -> None:
            if words == "scontrol":
                first.append(time.time() - began)

        found = self._timed(lambda: tick(port, settings, pause=see))
        rpcs = sum(a.rpcs for a in port.asked if a.argv == ("scontrol",))
        return Launch(found.seconds, first[0], found.controller_s, rpcs)

    def _whole(self) -> str:
        return f"--array=0-{self._nodes - 1}"

    def _submit(self, *options: str) -> str:
        return submitted(self._box, *options, "--output=/dev/null", str(self._script))

    def _timed(self, start: Callable[[], object]) -> Launch:
        self._starts.mkdir()
        asked, used = time.time(), controller_cpu_s(self._box)
        start()
        await_(lambda: len(list(self._starts.iterdir())) == self._nodes, "all starts")
        used = controller_cpu_s(self._box) - used
        time.sleep(0.2)  # the last line may still be on its way
        last = max(float(path.read_text() or 0) for path in self._starts.iterdir())
        empty(self._box, "malleable", self._nodes)
        self._forget()
        return Launch(last - asked, 0.0, used)

    def _forget(self) -> None:
        for path in self._starts.iterdir():
            path.unlink()
        self._starts.rmdir()


@dataclass(frozen=True)
class Starts:
    """So many processes started at once on this host: seconds until the last has ended."""

    command: str
    processes: int
    seconds: float

    @property
    def per_core(self) -> float:
        """Processes a second and core."""
        return self.processes / self.seconds / (os.cpu_count() or 1)


def process_starts() -> list[Starts]:
    """What a node does once its fragment runs; each command has run before, so from memory."""
    found = []
    for code, count in (("pass", CORES), ("import torch", CORES // 4)):
        argv = [sys.executable, "-c", code]
        subprocess.run(argv, check=True, timeout=PATIENCE_S)
        began = time.monotonic()
        running = [subprocess.Popen(argv) for _ in range(count)]
        for process in running:
            process.wait(PATIENCE_S)
        found.append(Starts(f"python -c '{code}'", count, time.monotonic() - began))
    return found


def projected_s(launch: Launch, nodes: int, starts: Starts) -> float:
    """Seconds for `CORES` processes on each of `PROJECTED` nodes: the tick before its first write,
    slurmctld's processor time for as many fragments, and on every node at once a process a core."""
    return launch.before_s + launch.controller_s / nodes * PROJECTED + 1 / starts.per_core


ROWS = {
    "array": "plain array, from sbatch",
    "held": "held array, from its release",
    "gangs": f"gangs of {FRAGMENTS}, from the tick's first write",
    "pool": "pool, from the tick's first write",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=512)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    found = measure(options.nodes, options.runs)
    show(options.nodes, found)
    starts = process_starts()
    pool = min(found["pool"], key=lambda launch: launch.seconds)
    seconds = {s.command: projected_s(pool, options.nodes, s) for s in starts}
    show_starts(starts, seconds)
    written = {name: [asdict(launch) for launch in found[name]] for name in ROWS}
    ratios = {name: middle(found[name]) / middle(found["array"]) for name in ROWS}
    row = {"nodes": options.nodes, "ratios": ratios, "launches": written, "goal": GOAL}
    row["processes"] = [{**asdict(s), "per_core": s.per_core} for s in starts]
    row["projected_s"] = seconds
    print(json.dumps({"benchmark": "launch", **row}))
    return 0 if max(ratios["gangs"], ratios["pool"]) <= GOAL else 1


def middle(launches: list[Launch]) -> float:
    """The median of the seconds since the first write."""
    return statistics.median(launch.seconds - launch.before_s for launch in launches)


def show(nodes: int, found: dict[str, list[Launch]]) -> None:
    """The medians as a table."""
    table = Table(title=f"{nodes} fragments, one a node, until all have started (medians)")
    for name in ("", "s", "times the array", "before it, s", "slurmctld s", "RPCs", "a second"):
        table.add_column(name)
    for name, what in ROWS.items():
        seconds = middle(found[name])
        before = statistics.median(launch.before_s for launch in found[name])
        used = statistics.median(launch.controller_s for launch in found[name])
        cells = [f"{seconds:.2f}", f"{seconds / middle(found['array']):.2f}", f"{before:.2f}"]
        cells += [f"{used:.2f}", str(found[name][0].rpcs), f"{nodes / seconds:.0f}"]
        table.add_row(what, *cells)
    Console(soft_wrap=True, width=None if sys.stdout.isatty() else 120).print(table)


def show_starts(starts: list[Starts], projected: dict[str, float]) -> None:
    """What a core starts, and what that makes of the whole machine."""
    table = Table(title=f"processes, and {PROJECTED} nodes of {CORES} cores projected")
    for name in ("", "at once", "s", "a second and core", "all nodes, s", "in all a second"):
        table.add_column(name)
    for found in starts:
        seconds = projected[found.command]
        cells = [str(found.processes), f"{found.seconds:.2f}", f"{found.per_core:.1f}"]
        cells += [f"{seconds:.2f}", f"{PROJECTED * CORES / seconds:,.0f}"]
        table.add_row(found.command, *cells)
    Console(soft_wrap=True, width=None if sys.stdout.isatty() else 120).print(table)


def measure(nodes: int, runs: int) -> dict[str, list[Launch]]:
    """The launches of each kind, in turns."""
    text = SETTINGS.format(nodes=nodes, most=nodes + 1)
    found: dict[str, list[Launch]] = {name: [] for name in ROWS}
    with Sandbox.up(project_spec(nodes=nodes, settings_text=text)) as box:
        configure(box)
        run = Run(box, nodes)
        kinds = {
            "array": run.array,
            "held": run.held_array,
            "gangs": run.gangs,
            "pool": run.pool,
        }
        for _ in range(runs):
            for name, start in kinds.items():
                found[name].append(start())
    return found


if __name__ == "__main__":
    sys.exit(main())
