"""Measure how long a wide job waits for nodes that fragments hold.

A job that needs 8, 64 and half of the nodes of a sandbox is submitted in turns to:

* empty: an empty machine.
* plain: a machine full of ordinary single-node jobs, which Slurm may preempt.
* ours: a machine full of malleable jobs of 64 fragments, each on a node, that end at SIGTERM.
* ahead: the same, but a command gives back just so many fragments before the submission.
* waves: the same in waves, as a tick could do it ahead of Slurm.
* wide: a machine full of fragments of 8 nodes.

A row has the seconds from sbatch (or that command) to the wide job's first line. It has slurmctld's
processor seconds until then, the load of the host's cores, the most processes that wanted them at
once, and the longest squeue in that time. The goal is 1.3 times the empty machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from parts.live_slurm import (
    CLOCK,
    SLEEPER,
    await_,
    configure,
    controller_cpu_s,
    empty,
    fill,
    held_nodes,
    submitted,
    tick,
)
from parts.printing import Row, arguments, show, tell

from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec

GOAL = 1.3  # times the empty machine
EACH = 8  # nodes of a wide fragment
ARRAY = 512  # jobs of an array
WAVE, WAVE_S = 32, 0.5  # fragments given back together, and the seconds between
UNITS = {"ours": 1, "ahead": 1, "waves": 1, "wide": EACH}  # nodes of a fragment
KINDS = ("empty", "plain", *UNITS)
SETTINGS = """
[mode]
level = "on"

[request]
max_fragments = {nodes}
"""
WIDE = "#!/bin/bash\ndate +%s.%N >first\n"


@dataclass(frozen=True)
class Reclaim:
    """Seconds to the wide job's first line, and the measurements until then.

    These are processor seconds of slurmctld, the busy share of the host's cores, the longest squeue
    in seconds, and the most processes that ran or wanted to at once. `taken` are the nodes that
    others lost.
    """

    seconds: float
    controller_s: float
    busy: float
    squeue_s: float
    runnable: int
    taken: int


class Run:
    """A Slurm that is filled, asked for nodes, and emptied again."""

    def __init__(self, box: Sandbox, nodes: int) -> None:
        self._box, self._nodes = box, nodes
        self._first = box.work / "first"
        for name, text in (("filler", SLEEPER), ("wide", WIDE)):
            (box.work / name).write_text(text)

    def taken(self, kind: str, size: int) -> Reclaim:
        """Submit a job of so many nodes to a machine of this kind."""
        self._fill(kind)
        self._first.unlink(missing_ok=True)
        box = self._box
        used, asked, busy = controller_cpu_s(box), time.time(), busy_s()
        with watched(box) as seen:
            self._give_back(kind, size)
            submitted(box, "-pmain", f"-N{size}", "--output=/dev/null", "wide")
            await_(lambda: self._first.exists() and self._first.read_text(), "the wide job", 0.02)
        used, busy = controller_cpu_s(box) - used, busy_s() - busy
        seconds = float(self._first.read_text()) - asked
        share = busy / (seconds * (os.cpu_count() or 1))
        left = self._nodes - held_nodes(box, "malleable") if kind != "empty" else 0
        empty(box, "malleable", self._nodes)
        return Reclaim(seconds, used, share, max(seen.squeues), seen.runnable, left)

    def _fill(self, kind: str) -> None:
        if kind == "plain":
            words = ("-pmalleable", "--time=60", "--output=/dev/null", "filler")
            for size in parts_of(self._nodes):
                submitted(self._box, f"--array=0-{size - 1}", *words)
        if kind in UNITS:
            fill(self._box, self._nodes, UNITS[kind])
            tick(self._box)
            await_(self._is_full, "a full machine")
            tick(self._box)  # which holds them for the case of a requeue
        if kind != "empty":
            await_(self._is_full, "a full machine")
        time.sleep(2)

    def _give_back(self, kind: str, size: int) -> None:
        """Give back as many fragments as the wide job needs nodes: at once, or in waves."""
        if kind not in ("ahead", "waves"):
            return
        running = self._box.run(["squeue", "-h", "--array", "--states=R", "-o%i"]).stdout.split()
        step = WAVE if kind == "waves" else size
        for first in range(0, size, step):
            given = running[first : min(first + step, size)]
            self._box.run(["scontrol", "requeue", ",".join(given)])
            time.sleep(WAVE_S if first + step < size else 0)

    def _is_full(self) -> bool:
        return held_nodes(self._box, "malleable") == self._nodes


def busy_s() -> float:
    """The busy processor seconds of all the host's cores so far."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, hard, soft = fields[:7]
    return (user + nice + system + hard + soft) / CLOCK


@dataclass
class Seen:
    """Measurements while a wide job waited: each squeue's seconds, the most processes at once."""

    squeues: list[float]
    runnable: int = 0


@contextmanager
def watched(box: Sandbox) -> Iterator[Seen]:
    """Measure Slurm and the host repeatedly while the body runs."""
    done, seen = threading.Event(), Seen([0.0])

    def ask() -> None:
        while not done.wait(0.2):
            began = time.monotonic()
            box.run(["squeue", "-h", "-o%i", "--states=R"], check=False)
            seen.squeues.append(time.monotonic() - began)

    def count() -> None:
        while not done.wait(0.05):
            running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
            seen.runnable = max(seen.runnable, int(running))

    threads = [threading.Thread(target=ask), threading.Thread(target=count)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        done.set()
        for thread in threads:
            thread.join()


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=256, help="of the sandbox")
    parser.add_argument("--runs", type=int, default=3, help="of each kind and size")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="and empty")
    parser.add_argument("--epilog", type=int, default=0, help="seconds of an EpilogSlurmctld")
    options = parser.parse_args()
    options.kinds = [kind for kind in KINDS if kind in {"empty", *options.kinds}]
    half = options.nodes // 2
    by_size = measure(options, sorted({size for size in (8, 64, half) if size <= half}))
    rows = [row for size, kinds in by_size.items() for row in table(size, kinds)]
    show(f"{options.nodes} nodes: until a wide job starts, medians", rows)
    ratios = [row["times_empty"] for row in rows if row["kind"] == "ours"]
    raw = {
        size: {kind: [asdict(one) for one in runs] for kind, runs in kinds.items()}
        for size, kinds in by_size.items()
    }
    is_met = all(ratio <= GOAL for ratio in ratios)
    return tell("reclaim", is_met, **vars(options), rows=rows, reclaims=raw)


def parts_of(count: int) -> list[int]:
    """The sizes of as few arrays as so many jobs need: Slurm's MaxArraySize is 1,001."""
    return [min(ARRAY, count - at) for at in range(0, count, ARRAY)]


def table(size: int, kinds: dict[str, list[Reclaim]]) -> list[Row]:
    """Return a row for each kind of machine."""

    def middle(kind: str, name: str = "seconds") -> float:
        return statistics.median(getattr(one, name) for one in kinds[kind])

    return [
        {
            "nodes": size,
            "kind": kind,
            "s": round(middle(kind), 2),
            "worst_s": round(max(one.seconds for one in runs), 2),
            "times_empty": round(middle(kind) / middle("empty"), 4),
            "slurmctld_s": round(middle(kind, "controller_s"), 2),
            "cores_busy": round(middle(kind, "busy"), 2),
            "processes": max(one.runnable for one in runs),
            "squeue_s": round(max(one.squeue_s for one in runs), 2),
            "nodes_lost": max(one.taken for one in runs),
        }
        for kind, runs in kinds.items()
    ]


def measure(options: argparse.Namespace, sizes: list[int]) -> dict[int, dict[str, list[Reclaim]]]:
    """The starts of wide jobs by size and by the state of the machine, in turns."""
    text = SETTINGS.format(nodes=options.nodes)
    by_size: dict[int, dict[str, list[Reclaim]]] = {
        size: {kind: [] for kind in options.kinds} for size in sizes
    }
    with TemporaryDirectory(prefix="reclaim-") as site:
        extra = epilog_slurmctld(Path(site), options.epilog)
        spec = project_spec(nodes=options.nodes, settings_text=text, extra_conf=extra)
        with Sandbox.up(spec) as box:
            configure(box)
            run = Run(box, options.nodes)
            for _ in range(options.runs):
                for size in sizes:
                    for kind in options.kinds:
                        by_size[size][kind].append(run.taken(kind, size))
    return by_size


def epilog_slurmctld(site: Path, seconds: int) -> str:
    """Lines for slurm.conf of a site whose own Epilog on the controller takes so long."""
    if not seconds:
        return ""
    site.chmod(0o755)
    script = site / "epilog"
    script.write_text(f"#!/bin/sh\nexec sleep {seconds}\n")
    script.chmod(0o755)
    return f"EpilogSlurmctld={script}\n"


if __name__ == "__main__":
    sys.exit(main())
