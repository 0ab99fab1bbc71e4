"""A wide job that takes nodes from fragments: `make bench-reclaim BENCH_ARGS="--nodes 256"`.

A sandbox of so many nodes, a real Slurm. A job that needs 8, 64 and half of the nodes is submitted
in turns to an empty machine; to one that is full of ordinary jobs which Slurm may preempt, one a
node; and to one that is full of malleable jobs of 64 fragments, one a node, whose script is the
same and ends at SIGTERM. Counted are the seconds from sbatch to the first line of the wide job, the
processor seconds of slurmctld until then, and the longest that a squeue beside it took.

Prints a table; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from launch import FRAGMENTS, SETTINGS
from live_slurm import await_, configure, controller_cpu_s, empty, submitted
from rich.console import Console
from rich.table import Table

from slurm_hooks.reconcile import tick
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec
from slurm_hooks.settings_file import load
from slurm_hooks.slurm.live import Live

GOAL = 1.3  # times the empty machine
KINDS = {"empty": "an empty machine", "plain": "ordinary jobs", "ours": "fragments"}
SCRIPT = "#!/bin/bash\nexec sleep 3600\n"
WIDE = "#!/bin/bash\ndate +%s.%N >first\n"


@dataclass(frozen=True)
class Reclaim:
    """Seconds to the wide job's first line; slurmctld's own; the longest squeue meanwhile."""

    seconds: float
    controller_s: float
    squeue_s: float


class Run:
    """One Slurm that is filled, asked for nodes, and emptied again."""

    def __init__(self, box: Sandbox, nodes: int) -> None:
        self._box, self._nodes = box, nodes
        self._first = box.work / "first"
        for name, text in (("filler", SCRIPT), ("wide", WIDE)):
            (box.work / name).write_text(text)

    def taken(self, kind: str, size: int) -> Reclaim:
        """A job of so many nodes from a machine of this kind."""
        self._fill(kind)
        self._first.unlink(missing_ok=True)
        used, asked = controller_cpu_s(self._box), time.time()
        with longest_squeue(self._box) as found:
            submitted(self._box, "-pmain", f"-N{size}", "--output=/dev/null", "wide")
            await_(lambda: self._first.exists() and self._first.read_text(), "the wide job", 0.02)
        used = controller_cpu_s(self._box) - used
        seconds = float(self._first.read_text()) - asked
        empty(self._box, "malleable", self._nodes)
        return Reclaim(seconds, used, max(found))

    def _fill(self, kind: str) -> None:
        quiet = ("--output=/dev/null", "filler")
        if kind == "plain":
            submitted(self._box, "-pmalleable", f"--array=0-{self._nodes - 1}", "--time=60", *quiet)
        if kind == "ours":
            for _ in range(-(-self._nodes // FRAGMENTS)):
                submitted(self._box, f"--malleable=1-{min(FRAGMENTS, self._nodes)}", *quiet)
            port = Live(environment={**os.environ, **self._box.environment})
            tick(port, load(self._box.settings))
            await_(self._is_full, "a full machine")
            tick(port, load(self._box.settings))  # which holds them for the case of a requeue
        if kind != "empty":
            await_(self._is_full, "a full machine")
        time.sleep(2)

    def _is_full(self) -> bool:
        argv = ["squeue", "-h", "--array", "--states=R", "-o%i"]
        return len(self._box.run(argv).stdout.split()) == self._nodes


@contextmanager
def longest_squeue(box: Sandbox) -> Iterator[list[float]]:
    """Ask again and again meanwhile; the seconds of each answer."""
    done, found = threading.Event(), [0.0]

    def ask() -> None:
        while not done.wait(0.2):
            began = time.monotonic()
            box.run(["squeue", "-h", "-o%i", "--states=R"], check=False)
            found.append(time.monotonic() - began)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    sizes = sorted({size for size in (8, 64, options.nodes // 2) if size <= options.nodes // 2})
    found = measure(options.nodes, options.runs, sizes)
    show(options.nodes, found)
    ratios = {size: middle(found[size]["ours"]) / middle(found[size]["empty"]) for size in sizes}
    written = {
        size: {kind: [asdict(one) for one in found[size][kind]] for kind in KINDS} for size in sizes
    }
    row = {"nodes": options.nodes, "ratios": ratios, "reclaims": written, "goal": GOAL}
    print(json.dumps({"benchmark": "reclaim", **row}))
    return 0 if max(ratios.values()) <= GOAL else 1


def middle(reclaims: list[Reclaim]) -> float:
    """The median of the seconds."""
    return statistics.median(one.seconds for one in reclaims)


def show(nodes: int, found: dict[int, dict[str, list[Reclaim]]]) -> None:
    """The medians as a table."""
    table = Table(title=f"{nodes} nodes: seconds until a wide job starts, median (worst)")
    for name in ("nodes", "machine full of", "s", "times empty", "slurmctld s", "longest squeue"):
        table.add_column(name)
    for size, kinds in found.items():
        for kind, rows in kinds.items():
            worst = max(one.seconds for one in rows)
            ratio = middle(rows) / middle(kinds["empty"])
            used = statistics.median(one.controller_s for one in rows)
            asked = max(one.squeue_s for one in rows)
            cells = (f"{middle(rows):.2f} ({worst:.2f})", f"{ratio:.2f}", f"{used:.2f}")
            table.add_row(str(size), KINDS[kind], *cells, f"{asked:.2f}")
    Console(soft_wrap=True, width=None if sys.stdout.isatty() else 120).print(table)


def measure(nodes: int, runs: int, sizes: list[int]) -> dict[int, dict[str, list[Reclaim]]]:
    """The starts of wide jobs by size and by what the machine was full of, in turns."""
    text = SETTINGS.format(nodes=nodes, most=nodes + 1)
    found: dict[int, dict[str, list[Reclaim]]] = {
        size: {kind: [] for kind in KINDS} for size in sizes
    }
    with Sandbox.up(project_spec(nodes=nodes, settings_text=text)) as box:
        configure(box)
        run = Run(box, nodes)
        for _ in range(runs):
            for size in sizes:
                for kind in KINDS:
                    found[size][kind].append(run.taken(kind, size))
    return found


if __name__ == "__main__":
    sys.exit(main())
