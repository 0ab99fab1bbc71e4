"""A wide job that takes nodes from fragments: `make bench-reclaim BENCH_ARGS="--nodes 256"`.

A sandbox of so many nodes, a real Slurm. A job that needs 8, 64 and half of the nodes is submitted
in turns to an empty machine; to one that is full of ordinary jobs which Slurm may preempt, one a
node; to one that is full of malleable jobs of 64 fragments, one a node, whose script is the same
and ends at SIGTERM; to the same, of which just so many fragments are given back with one command
before the wide job is submitted, at once or in waves (what a tick could do ahead of Slurm); and to
fragments of 8 nodes. Counted are the seconds from sbatch (or that command) to the wide job's first
line, the processor seconds of slurmctld until then, how busy the host's cores were, how many
processes wanted them at once, and the longest that a squeue beside it took.

`--epilog 5` gives the Slurm an EpilogSlurmctld of 5 s. Prints a table; the last line is one JSON
object.
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
from pathlib import Path
from tempfile import TemporaryDirectory

from launch import FRAGMENTS, SETTINGS
from live_slurm import CLOCK, await_, configure, controller_cpu_s, empty, submitted
from rich.console import Console
from rich.table import Table

from slurm_hooks.reconcile import tick
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec
from slurm_hooks.settings_file import load
from slurm_hooks.slurm.live import Live

GOAL = 1.3  # times the empty machine
EACH = 8  # nodes of a wide fragment
ARRAY = 512  # jobs of an array
WAVE, WAVE_S = 32, 0.5  # fragments given back together, and the seconds between
KINDS = {
    "empty": "an empty machine",
    "plain": "ordinary jobs",
    "ours": "fragments",
    "ahead": "fragments, given back ahead",
    "waves": f"the same, {WAVE} each {WAVE_S} s",
    "wide": f"fragments of {EACH} nodes",
}
FRAGMENTS_OF = {"ours": 1, "ahead": 1, "waves": 1, "wide": EACH}  # nodes of each
SCRIPT = "#!/bin/bash\nexec sleep 3600\n"
WIDE = "#!/bin/bash\ndate +%s.%N >first\n"


@dataclass(frozen=True)
class Reclaim:
    """Seconds to the wide job's first line, and what was seen meanwhile: processor seconds of
    slurmctld, the share of the host's cores that was busy, the longest squeue in seconds, and the
    most processes that ran or wanted to at once. `taken` are the nodes that others lost."""

    seconds: float
    controller_s: float
    busy: float
    squeue_s: float
    runnable: int
    taken: int


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
        used, asked, busy = controller_cpu_s(self._box), time.time(), busy_s()
        with watched(self._box) as found:
            self._give_back(kind, size)
            submitted(self._box, "-pmain", f"-N{size}", "--output=/dev/null", "wide")
            await_(lambda: self._first.exists() and self._first.read_text(), "the wide job", 0.02)
        used, busy = controller_cpu_s(self._box) - used, busy_s() - busy
        seconds = float(self._first.read_text()) - asked
        share = busy / (seconds * (os.cpu_count() or 1))
        left = self._nodes - self._held() if kind != "empty" else 0
        empty(self._box, "malleable", self._nodes)
        return Reclaim(seconds, used, share, max(found.squeues), found.runnable, left)

    def _fill(self, kind: str) -> None:
        quiet = ("--output=/dev/null", "filler")
        if kind == "plain":
            for size in parts_of(self._nodes):
                array = ("--time=60", f"--array=0-{size - 1}")
                submitted(self._box, "-pmalleable", *array, *quiet)
        if kind in FRAGMENTS_OF:
            self._fill_with_fragments(FRAGMENTS_OF[kind], quiet)
        if kind != "empty":
            await_(self._is_full, "a full machine")
        time.sleep(2)

    def _fill_with_fragments(self, unit: int, quiet: tuple[str, ...]) -> None:
        most = min(FRAGMENTS * unit, self._nodes)
        for _ in range(-(-self._nodes // most)):
            submitted(self._box, f"--malleable={unit}-{most},unit={unit}", *quiet)
        port = Live(environment={**os.environ, **self._box.environment})
        tick(port, load(self._box.settings))
        await_(self._is_full, "a full machine")
        tick(port, load(self._box.settings))  # which holds them for the case of a requeue

    def _give_back(self, kind: str, size: int) -> None:
        """As many fragments as the wide job needs nodes: at once, or in waves."""
        if kind not in ("ahead", "waves"):
            return
        running = self._box.run(["squeue", "-h", "--array", "--states=R", "-o%i"]).stdout.split()
        step = WAVE if kind == "waves" else size
        for first in range(0, size, step):
            given = running[first : min(first + step, size)]
            self._box.run(["scontrol", "requeue", ",".join(given)])
            time.sleep(WAVE_S if first + step < size else 0)

    def _held(self) -> int:
        """How many nodes what fills the machine has."""
        argv = ["squeue", "-h", "--array", "-pmalleable", "--states=R", "-o%D"]
        return sum(map(int, self._box.run(argv).stdout.split()))

    def _is_full(self) -> bool:
        return self._held() == self._nodes


def busy_s() -> float:
    """Processor seconds of all of the host's cores so far that were not idle."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, hard, soft = fields[:7]
    return (user + nice + system + hard + soft) / CLOCK


@dataclass
class Seen:
    """What was seen while a wide job waited: each squeue's seconds, the most processes at once."""

    squeues: list[float]
    runnable: int = 0


@contextmanager
def watched(box: Sandbox) -> Iterator[Seen]:
    """Ask Slurm and the host again and again meanwhile."""
    done, found = threading.Event(), Seen([0.0])

    def ask() -> None:
        while not done.wait(0.2):
            began = time.monotonic()
            box.run(["squeue", "-h", "-o%i", "--states=R"], check=False)
            found.squeues.append(time.monotonic() - began)

    def count() -> None:
        while not done.wait(0.05):
            running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
            found.runnable = max(found.runnable, int(running))

    threads = [threading.Thread(target=ask), threading.Thread(target=count)]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        done.set()
        for thread in threads:
            thread.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="beside an empty machine"
    )
    parser.add_argument("--epilog", type=int, default=0, help="seconds of an EpilogSlurmctld")
    options = parser.parse_args()
    options.kinds = [kind for kind in KINDS if kind in {"empty", *options.kinds}]
    sizes = sorted({size for size in (8, 64, options.nodes // 2) if size <= options.nodes // 2})
    found = measure(options, sizes)
    show(options.nodes, found)
    ratios = {size: ratio(rows) for size, rows in found.items() if "ours" in rows}
    written = {
        size: {kind: [asdict(one) for one in rows] for kind, rows in found[size].items()}
        for size in sizes
    }
    row = {"nodes": options.nodes, "ratios": ratios, "reclaims": written, "goal": GOAL}
    row["epilog_slurmctld_s"] = options.epilog
    print(json.dumps({"benchmark": "reclaim", **row}))
    return 0 if all(ratio <= GOAL for ratio in ratios.values()) else 1


def parts_of(count: int) -> list[int]:
    """The sizes of as few arrays as so many jobs need: Slurm's MaxArraySize is 1,001."""
    return [min(ARRAY, count - at) for at in range(0, count, ARRAY)]


def ratio(rows: dict[str, list[Reclaim]]) -> float:
    """From fragments as they are shipped, in times of an empty machine."""
    return middle(rows["ours"]) / middle(rows["empty"])


def middle(reclaims: list[Reclaim]) -> float:
    """The median of the seconds."""
    return statistics.median(one.seconds for one in reclaims)


def show(nodes: int, found: dict[int, dict[str, list[Reclaim]]]) -> None:
    """The medians as a table."""
    table = Table(title=f"{nodes} nodes: seconds until a wide job starts, median (worst)")
    for name in ("nodes", "machine full of", "s", "times empty", "slurmctld s", "cores busy"):
        table.add_column(name)
    for name in ("processes at once", "longest squeue", "nodes lost"):
        table.add_column(name)
    for size, kinds in found.items():
        for kind, rows in kinds.items():
            worst = max(one.seconds for one in rows)
            times = middle(rows) / middle(kinds["empty"])
            used = statistics.median(one.controller_s for one in rows)
            busy = statistics.median(one.busy for one in rows)
            cells = [f"{middle(rows):.2f} ({worst:.2f})", f"{times:.2f}", f"{used:.2f}"]
            cells += [f"{busy:.0%}", str(max(one.runnable for one in rows))]
            cells += [f"{max(one.squeue_s for one in rows):.2f}", str(max(r.taken for r in rows))]
            table.add_row(str(size), KINDS[kind], *cells)
    Console(soft_wrap=True, width=None if sys.stdout.isatty() else 120).print(table)


def measure(options: argparse.Namespace, sizes: list[int]) -> dict[int, dict[str, list[Reclaim]]]:
    """The starts of wide jobs by size and by what the machine was full of, in turns."""
    text = SETTINGS.format(nodes=options.nodes, most=options.nodes + 1)
    found: dict[int, dict[str, list[Reclaim]]] = {
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
                        found[size][kind].append(run.taken(kind, size))
    return found


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
