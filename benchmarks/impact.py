"""What ordinary jobs feel of us: `make bench-impact BENCH_ARGS="--nodes 8 64 --starts 100"`.

On real Slurms. Starts: `srun -N1 true` again and again, on a machine that is empty, on one that
ordinary jobs of one node fill but for two nodes, on one that malleable jobs fill but for a headroom
of two, and on one that they fill; ticks at their own pace. In rounds, so that each finds the same
host, and each kind of machine is left alone until all its nodes, which share this host, are done
with starting. Overheads: the same srun and sbatch on two Slurms of four nodes in turns, one of them
without anything of ours, and no malleable job on either.

Prints a table each; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Iterable, Iterator

from live_slurm import await_, configure, controller_cpu_s, empty, submitted, ticks
from rich.console import Console
from rich.progress import track
from rich.table import Table

from slurm_hooks.sandbox import Sandbox, SandboxSpec
from slurm_hooks.sandbox.project import project_spec

GOAL = 1.1  # times the empty machine, at the median and at p99
FRAGMENTS = 64  # of a malleable job
HEADROOM = 2
KINDS = {
    "empty": "empty",
    "ordinary": f"ordinary jobs on all but {HEADROOM}",
    "headroom": f"ours on all but {HEADROOM}",
    "full": "ours on all",
}
SETTLE_S = 10.0
PAUSE_S = 0.25  # between two starts, so that they meet ticks and lease renewals as they come
SAY = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 120)
Times = dict[str, list[float]]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--starts", type=int, default=100, help="on each kind of machine")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    found = {}
    for nodes in options.nodes:
        found[nodes] = starts(nodes, options.starts // options.rounds, options.rounds)
        show(f"{nodes} nodes: seconds that srun -N1 true takes", found[nodes], "empty")
    costs = overheads(options.starts)
    show("seconds of a command, without and with us", costs, "srun without")
    rows = {nodes: {kind: summary(times[kind]) for kind in KINDS} for nodes, times in found.items()}
    ratios = {nodes: _ratios(row) for nodes, row in rows.items()}
    told = {"starts": rows, "ratios": ratios, "goal": GOAL}
    told["overheads"] = {kind: summary(times) for kind, times in costs.items()}
    print(json.dumps({"benchmark": "impact", **told}))
    return 0 if max(max(pair.values()) for pair in ratios.values()) <= GOAL else 1


def _ratios(row: dict[str, dict[str, float]]) -> dict[str, float]:
    return {name: row["headroom"][name] / row["empty"][name] for name in ("p50", "p99")}


def starts(nodes: int, each: int, rounds: int) -> Times:
    """Seconds of each start, by what the machine was."""
    found: Times = {kind: [] for kind in KINDS}
    with Sandbox.up(project_spec(nodes=nodes, settings_text="")) as box:
        configure(box)
        shipped = box.settings.read_text()
        for _ in track(range(rounds), f"{nodes} nodes", console=SAY, disable=not SAY.is_terminal):
            for kind in KINDS:
                free = {"empty": nodes, "full": 0}.get(kind, HEADROOM)
                plan = f"[plan]\nheadroom_nodes = {free}\n"
                box.settings.write_text(shipped.replace("[plan]\n", plan))
                fill = others if kind == "ordinary" else filled
                with fill(box, nodes, free):
                    time.sleep(SETTLE_S)
                    found[kind] += [_start(box) for _ in range(each)]
    return found


def _start(box: Sandbox) -> float:
    time.sleep(PAUSE_S)
    return _seconds(box, "srun", "-N1", "true")


@contextlib.contextmanager
def filled(box: Sandbox, nodes: int, free: int) -> Iterator[None]:
    """Malleable jobs on all nodes but these, and ticks, for as long as this lasts."""
    if free == nodes:
        yield
        return
    script = box.work / "filler"
    script.write_text("#!/bin/bash\nexec sleep 3600\n")
    try:
        with ticks(box):
            for _ in range(-(-nodes // FRAGMENTS)):
                submitted(box, f"--malleable=1-{min(FRAGMENTS, nodes)}", "-o/dev/null", "filler")
            await_(lambda: _running(box) == nodes - free, f"{nodes - free} fragments")
            yield
    finally:
        empty(box, "malleable", nodes)


@contextlib.contextmanager
def others(box: Sandbox, nodes: int, free: int) -> Iterator[None]:
    """Ordinary jobs of one node on all nodes but these, in the partition of malleable jobs."""
    words = ("--exclusive", "-N1", "-t60", "-o/dev/null", "--wrap=exec sleep 3600")
    submitted(box, "-pmalleable", f"--array=1-{nodes - free}", *words)
    try:
        await_(lambda: _running(box) == nodes - free, f"{nodes - free} ordinary jobs")
        yield
    finally:
        empty(box, "malleable", nodes)


def _running(box: Sandbox) -> int:
    argv = ["squeue", "-h", "--array", "--states=R", "-o%i", "--partition=malleable"]
    return len(box.run(argv).stdout.split())


def _seconds(box: Sandbox, *words: str) -> float:
    began = time.monotonic()
    box.run([words[0], "-pmain", *words[1:]], cwd=box.work)
    return time.monotonic() - began


def overheads(count: int) -> Times:
    """Seconds of srun and of sbatch on a Slurm without and on one with us, in turns."""
    found: Times = {f"{what} {who}": [] for what in ("srun", "sbatch") for who in WHO}
    with Sandbox.up(SandboxSpec(nodes=4)) as bare, Sandbox.up(project_spec(nodes=4)) as ours:
        used = {who: controller_cpu_s(box) for who, box in zip(WHO, (bare, ours))}
        for _ in range(count):
            for who, box in zip(WHO, (bare, ours)):
                found[f"srun {who}"].append(_seconds(box, "srun", "-N1", "true"))
                words = ("sbatch", "--hold", "-o/dev/null", "--wrap=true")
                found[f"sbatch {who}"].append(_seconds(box, *words))
        for who, box in zip(WHO, (bare, ours)):
            each = (controller_cpu_s(box) - used[who]) / count
            SAY.print(f"slurmctld {who} us: {1000 * each:.1f} ms of a processor for each pair")
    return found


WHO = ("without", "with")


def summary(times: Iterable[float]) -> dict[str, float]:
    """Median, p95, p99 and the worst."""
    found = sorted(times)
    cuts = statistics.quantiles(found, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "worst": found[-1], "n": len(found)}


def show(title: str, times: Times, base: str) -> None:
    """One row for each kind; ratios to the row `base`, of commands to that without us."""
    table = Table(title=title)
    for name in ("", "p50", "p95", "p99", "worst", "p50 ratio", "p99 ratio", "n"):
        table.add_column(name)
    for kind, found in times.items():
        row = summary(found)
        other = kind.replace(" with", " without") if kind.endswith(" with") else kind
        against = summary(times[other if " " in kind else base])
        cells = [f"{row[name]:.3f}" for name in ("p50", "p95", "p99", "worst")]
        cells += [f"{row[name] / against[name]:.2f}" for name in ("p50", "p99")]
        table.add_row(KINDS.get(kind, kind), *cells, str(row["n"]))
    SAY.print(table)


if __name__ == "__main__":
    sys.exit(main())
