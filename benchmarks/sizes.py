"""Measure how long Slurm takes for the sizes of fragments before they are released.

Fragments that count slots of a node each have a line of scontrol: node, lease, mark, and a changed
size. Fragments of whole nodes share a line. The lines are a tick's lines, and a single scontrol
takes them all. Every fragment changes its size in every round. The processor seconds are
slurmctld's. Exit code 1 if the goal is missed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from parts.live_slurm import SLEEPER, controller_cpu_s, port, submitted
from parts.printing import Row, arguments, show, tell

from slurm_hooks.model import FragmentId, Intent, Mark, Request, Resources, Slot, Verb, Why
from slurm_hooks.sandbox import Sandbox, SandboxSpec
from slurm_hooks.slurm.actions import starts
from slurm_hooks.slurm.text import AllBut

GOAL_S = 1.5
NODES, GPUS, CPUS, MEMORY_MIB = 16, 8, 32, 256_000
SLOT = Slot("gpu")
ONE = Resources(CPUS // GPUS, MEMORY_MIB // GPUS, (("gpu", 1),))
LEASE = timedelta(minutes=10)
WHOLE, SAME, CHANGED = "whole nodes, a line for all", "slots, of the same size", "slots, resized"


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--fragments", type=int, default=500, help="fragments that start at once")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each kind")
    chosen = parser.parse_args()
    spec = SandboxSpec(nodes=NODES, cpus=CPUS, memory_mib=MEMORY_MIB, gpus=GPUS)
    with Sandbox.up(spec) as box:
        medians = measured(box, chosen.fragments, chosen.rounds)
    rows = [{"fragments": kind, **row} for kind, row in medians.items()]
    show(f"{chosen.fragments} fragments get their nodes", rows)
    return tell("sizes", medians[CHANGED]["wall_s"] <= GOAL_S, rows=rows)


def measured(box: Sandbox, fragments: int, rounds: int) -> dict[str, Row]:
    """The median seconds of each kind. They take turns."""
    (box.work / "fragment").write_text(SLEEPER)
    words = ("--hold", "--requeue", f"--array=0-{fragments - 1}", "--gres=gpu:1", "-n1", "-c4")
    job = int(submitted(box, "-p", "parts", "-o", "/dev/null", *words, "--mem=32000", "fragment"))
    times: dict[str, list[tuple[float, float]]] = {WHOLE: [], SAME: [], CHANGED: []}
    for count in range(rounds):
        slots = 4 if count % 2 else 2
        for kind in (CHANGED, SAME, WHOLE):
            grows = [grow(FragmentId(job, n), slots, kind) for n in range(fragments)]
            times[kind].append(took_s(box, grows))
    return {kind: median_row(pairs) for kind, pairs in times.items()}


def grow(fragment: FragmentId, slots: int, kind: str) -> Intent:
    """The intent of a tick for a fragment."""
    request = Request(1, 4000, 500, LEASE, LEASE, excluded=frozenset())
    if kind != WHOLE:
        request = replace(request, slot=SLOT)
    name = f"n{fragment.index % NODES + 1}"
    return Intent(
        fragment,
        Why.HOLE_OPEN,
        Verb.GROW,
        mark=Mark(request, slots=slots if kind != WHOLE else 0),
        nodes=frozenset({name}),
        limit=LEASE,
        asks=ONE.times(slots),
        is_resized=kind == CHANGED,
    )


def took_s(box: Sandbox, grows: Sequence[Intent]) -> tuple[float, float]:
    """The seconds that the updates take, and slurmctld's part of them. No fragment is released."""
    *updates, _ = starts(grows, {}, AllBut(f"n{n}" for n in range(1, NODES + 1)))
    slurm, began, cpu_s = port(box), time.monotonic(), controller_cpu_s(box)
    for command in updates:
        slurm.ask(command)
    return time.monotonic() - began, controller_cpu_s(box) - cpu_s


def median_row(pairs: Sequence[tuple[float, float]]) -> Row:
    wall, cpu = (statistics.median(column) for column in zip(*pairs))
    return {"wall_s": round(wall, 2), "slurmctld_s": round(cpu, 2)}


if __name__ == "__main__":
    sys.exit(main())
