"""Measure how much longer ordinary jobs wait because of malleable jobs.

Starts: `srun -N1 true` repeatedly, on a real Slurm. The machine is empty, full of ordinary
single-node jobs except two nodes, full of malleable jobs except a headroom of two, or full of
malleable jobs. Ticks run every 5 s. The kinds of machine take turns in rounds, so each has
the same host. All nodes share this host, so each kind waits until all nodes have started.

Overheads: the same srun and sbatch on two Slurms of four nodes in turns. The second has our
software, and neither has a malleable job. The goal is 1.1 times the empty machine with the
headroom, at the median and at p99.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Iterator

from parts.live_slurm import (
    SLEEPER,
    await_,
    configure,
    controller_cpu_s,
    empty,
    fill,
    held_nodes,
    submitted,
    ticks,
)
from parts.printing import SAY, Row, arguments, in_turns, show, tell

from slurm_hooks.sandbox import Sandbox, SandboxSpec
from slurm_hooks.sandbox.project import project_spec

GOAL = 1.1  # times the empty machine
HEADROOM = 2
KINDS = ("empty", "ordinary", "headroom", "full")
SETTLE_S = 10.0
PAUSE_S = 0.25  # between two starts, so that they meet ticks and lease renewals as they come
Times = dict[str, list[float]]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 64], help="of sandboxes")
    parser.add_argument("--starts", type=int, default=100, help="on each kind of machine")
    parser.add_argument("--rounds", type=int, default=4, help="in which the kinds take turns")
    options = parser.parse_args()
    by_nodes = {}
    for nodes in options.nodes:
        times = starts(nodes, options.starts // options.rounds, options.rounds)
        by_nodes[nodes] = rows_of(times, "empty")
        show(f"{nodes} nodes: seconds that srun -N1 true takes", by_nodes[nodes])
    costs, slurmctld_ms = overheads(options.starts)
    overhead_rows = [
        {**row, "kind": f"{name} {row['kind']}"}
        for name, times in costs.items()
        for row in rows_of(times, "without")
    ]
    show("seconds of a command, without and with us", overhead_rows)
    show("slurmctld's milliseconds of a processor for each pair", [slurmctld_ms])
    worst = max(
        max(row["p50_ratio"], row["p99_ratio"])
        for rows in by_nodes.values()
        for row in rows
        if row["kind"] == "headroom"
    )
    return tell(
        "impact", worst <= GOAL, starts=by_nodes, overheads=overhead_rows, slurmctld_ms=slurmctld_ms
    )


def starts(nodes: int, each: int, rounds: int) -> Times:
    """Seconds of each start, by the state of the machine."""
    times: Times = {kind: [] for kind in KINDS}
    with Sandbox.up(project_spec(nodes=nodes, settings_text="")) as box:
        configure(box, tick="every_s = 5\n")
        shipped = box.settings.read_text()
        for number in range(rounds):
            for kind in KINDS:
                SAY.print(f"{nodes} nodes, round {number + 1}: {kind}")
                free = {"empty": nodes, "full": 0}.get(kind, HEADROOM)
                plan = f"[plan]\nheadroom_nodes = {free}\n"
                box.settings.write_text(shipped.replace("[plan]\n", plan))
                keep = others if kind == "ordinary" else filled
                with keep(box, nodes, free):
                    time.sleep(SETTLE_S)
                    times[kind] += [_start(box) for _ in range(each)]
    return times


def _start(box: Sandbox) -> float:
    time.sleep(PAUSE_S)
    return _seconds(box, "srun", "-N1", "true")


@contextlib.contextmanager
def filled(box: Sandbox, nodes: int, free: int) -> Iterator[None]:
    """Keep malleable jobs on all nodes except these, with ticks."""
    if free == nodes:
        yield
        return
    try:
        with ticks(box):
            fill(box, nodes)
            await_(lambda: held_nodes(box, "malleable") == nodes - free, "fragments")
            yield
    finally:
        empty(box, "malleable", nodes)


@contextlib.contextmanager
def others(box: Sandbox, nodes: int, free: int) -> Iterator[None]:
    """Keep ordinary single-node jobs on all nodes except these, in our partition."""
    (box.work / "other").write_text(SLEEPER)
    words = (f"--array=1-{nodes - free}", "--exclusive", "-N1", "-t60", "-o/dev/null", "other")
    submitted(box, "-pmalleable", *words)
    try:
        await_(lambda: held_nodes(box, "malleable") == nodes - free, "ordinary jobs")
        yield
    finally:
        empty(box, "malleable", nodes)


def _seconds(box: Sandbox, *words: str) -> float:
    began = time.monotonic()
    box.run([words[0], "-pmain", *words[1:]], cwd=box.work)
    return time.monotonic() - began


def overheads(count: int) -> tuple[dict[str, Times], Row]:
    """Return the seconds of srun and of sbatch on a Slurm without and with our software.

    The result includes the milliseconds of their slurmctlds.
    """
    commands = {
        "srun": ("srun", "-N1", "true"),
        "sbatch": ("sbatch", "--hold", "-o/dev/null", "--wrap=true"),
    }
    costs = {}
    with Sandbox.up(SandboxSpec(nodes=4)) as bare, Sandbox.up(project_spec(nodes=4)) as ours:
        boxes = {"without": bare, "with": ours}
        used = {who: controller_cpu_s(box) for who, box in boxes.items()}
        for name, words in commands.items():
            turns = in_turns(
                lambda words=words: _seconds(bare, *words),
                lambda words=words: _seconds(ours, *words),
                count,
            )
            costs[name] = dict(zip(boxes, map(list, zip(*turns))))
        return costs, {
            who: round(1000 * (controller_cpu_s(box) - used[who]) / count, 1)
            for who, box in boxes.items()
        }


def rows_of(times: Times, base: str) -> list[Row]:
    """Return median, p95, p99 and the worst of each kind, and ratios to the kind `base`."""
    cuts = {kind: statistics.quantiles(t, n=100, method="inclusive") for kind, t in times.items()}
    return [
        {
            "kind": kind,
            **{f"p{p}": round(cuts[kind][p - 1], 3) for p in (50, 95, 99)},
            "worst": round(max(seconds), 3),
            **{f"p{p}_ratio": round(cuts[kind][p - 1] / cuts[base][p - 1], 4) for p in (50, 99)},
            "n": len(seconds),
        }
        for kind, seconds in times.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
