"""How long many workers take to start: `make bench-pool BENCH_ARGS="--nodes 512"`.

A sandbox of so many nodes, a real Slurm. A pool of one worker a node is released by one tick; in
turn with it a plain array of as many elements of the same script, which Slurm starts by itself, and
one that was held and is released with one command. Counted is the time until the last worker has
written its first line: for the pool from the beginning of the tick, and from its first write.

Prints a table; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

from live_slurm import await_, configure
from rich.console import Console
from rich.table import Table

from slurm_hooks.reconcile import tick
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec
from slurm_hooks.settings_file import load
from slurm_hooks.slurm.live import Live

SCRIPT = """#!/bin/bash
echo "$(date +%s.%N)" >starts/$SLURM_ARRAY_TASK_ID
exec sleep 600
"""
SETTINGS = """
[request]
max_fragments = {nodes}
max_array_size = {most}
"""


class Run:
    """One Slurm on which arrays and pools are started in turn."""

    def __init__(self, box: Sandbox, nodes: int) -> None:
        self._box, self._nodes = box, nodes
        self._starts = box.work / "starts"
        self._script = box.work / "worker.sh"
        self._script.write_text(SCRIPT)

    def array(self) -> float:
        """Seconds from sbatch's answer to the last start of a plain array."""
        return self._timed(lambda: self._submit("--partition=malleable", self._whole()))

    def held_array(self) -> float:
        """The same from the release of one that was held."""
        job = self._submit("--partition=malleable", self._whole(), "--hold")
        return self._timed(lambda: self._box.run(["scontrol", "release", job]))

    def pool(self) -> tuple[float, float]:
        """Seconds from the beginning of the tick that releases it to the last start, and of
        these, until its first write."""
        self._submit(f"--malleable=1-{self._nodes},engine=pool", "--time=10")
        port = Live(environment={**os.environ, **self._box.environment})
        settings, began = load(self._box.settings), time.time()
        first: list[float] = []

        def see(words: str) -> None:
            if words == "scontrol":
                first.append(time.time() - began)

        taken = self._timed(lambda: tick(port, settings, pause=see))
        return taken, first[0]

    def _whole(self) -> str:
        return f"--array=0-{self._nodes - 1}"

    def _submit(self, *options: str) -> str:
        words = ["sbatch", "--parsable", *options, "--output=/dev/null", str(self._script)]
        return self._box.run(words, cwd=self._box.work).stdout.strip()

    def _timed(self, start: Callable[[], object]) -> float:
        self._starts.mkdir()
        asked = time.time()
        start()
        await_(lambda: len(list(self._starts.iterdir())) == self._nodes, "all workers")
        time.sleep(0.2)  # the last line may still be on its way
        last = max(float(path.read_text() or 0) for path in self._starts.iterdir())
        self._clear()
        return last - asked

    def _clear(self) -> None:
        self._box.run(["scancel", "--partition=malleable", "--full"], check=False)
        self._box.run(["scancel", "--partition=malleable"], check=False)
        await_(lambda: not self._box.run(["squeue", "-h"]).stdout.strip(), "an empty Slurm")
        idle = ["sinfo", "-h", "-t", "idle", "-o", "%D", "-p", "malleable"]
        await_(lambda: self._box.run(idle).stdout.strip() == str(self._nodes), "free nodes")
        for path in self._starts.iterdir():
            path.unlink()
        self._starts.rmdir()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=512)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    say = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else 120)
    found = measure(options.nodes, options.runs)
    array, held, pool, before = (statistics.median(column) for column in zip(*found))
    table = Table("what", "median s", title=f"{options.nodes} workers, one a node, until all work")
    table.add_row("plain array, from sbatch", f"{array:.2f}")
    table.add_row("held array, from its release", f"{held:.2f}")
    table.add_row("pool, from the beginning of the tick", f"{pool:.2f}")
    table.add_row("of that, before its first write", f"{before:.2f}")
    say.print(table)
    ratio = (pool - before) / held
    row = {"nodes": options.nodes, "array_s": array, "held_s": held, "pool_s": pool}
    row |= {"before_s": before, "ratio": ratio, "runs": found}
    print(json.dumps({"benchmark": "pool_start", **row}))
    return 0 if ratio <= 1.5 else 1


def measure(nodes: int, runs: int) -> list[tuple[float, float, float, float]]:
    """Of each run: plain array, held array, pool from the tick's beginning, of that before the
    first write; seconds."""
    text = SETTINGS.format(nodes=nodes, most=nodes + 1)
    rows = []
    with Sandbox.up(project_spec(nodes=nodes, settings_text=text)) as box:
        configure(box)
        run = Run(box, nodes)
        for _ in range(runs):
            array, held = run.array(), run.held_array()
            rows.append((array, held, *run.pool()))
    return rows


if __name__ == "__main__":
    sys.exit(main())
