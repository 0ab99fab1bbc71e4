"""A recorded machine on a real Slurm: its nodes, and the times and nodes of its jobs.

Each use of a node by others is an ordinary job for that node. All jobs of a run get the order to
begin at the same time, so that the first jobs do not end early.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from parts.live_slurm import PATIENCE_S, await_, submitted
from parts.replay_runs import data

from slurm_hooks.replay import scenario
from slurm_hooks.replay.record import Interval, Record
from slurm_hooks.replay.scenario import Source
from slurm_hooks.sandbox import Sandbox

SHORTEST_S = 0.5
# The kind of each log, and from where on it is played.
LOGS = {
    "summit": ("idle", Path("bftrainer", "summit_first.idle.csv.gz"), 200_000.0),
    **{
        name: ("slots", Path("gpu-holes", f"{name}.csv.gz"), 410_400.0)
        for name in ("best_70x8", "full_64x8", "spread_70x8")
    },
}
# Its name, its run, and when it ends in the time of the record.
OTHER = """#!/bin/bash
echo $EPOCHREALTIME >other-$1
until [ -s go-$2 ]; do sleep 0.1; done
left=$(awk "BEGIN { print $(cat go-$2) + $3 - $EPOCHREALTIME }")
[ "${left:0:1}" = - ] || exec sleep $left
"""


def part(log: str, nodes: int, seconds: float, compress: float) -> Record:
    """The nodes with the most changes in the part of the log that is played."""
    kind, path, from_s = LOGS[log]
    cut = scenario.load(Source(kind, data() / path), print)
    cut = cut.between(from_s, from_s + seconds * compress)
    count: Counter[int] = Counter()
    for each in cut.intervals:
        count[each.node] += (each.start_s > cut.from_s) + (each.end_s < cut.to_s)
    chosen = sorted(count, key=lambda n: (-count[n], n))[:nodes]
    kept = [
        Interval(place, (i.start_s - from_s) / compress, (i.end_s - from_s) / compress)
        for place, node in enumerate(chosen)
        for i in sorted((i for i in cut.intervals if i.node == node), key=lambda i: i.start_s)
    ]
    return Record(tuple(kept), nodes, 0.0, seconds, slots=cut.slots)


@dataclass(frozen=True, order=True)
class Taken:
    """Slots of a node that others use from `start_s` to `end_s`."""

    start_s: float
    node: int
    end_s: float
    slots: int


def taken(record: Record) -> list[Taken]:
    """The use by others, in the order of its starts.

    Slots that start and end together belong to a single job.
    """
    slots_of: Counter[tuple[float, int, float]] = Counter()
    for node in range(record.nodes):
        mine = [i for i in record.intervals if i.node == node]
        busy = Counter({0.0: record.slots})  # how many more slots others have from then on
        for each in mine:
            busy[each.start_s] -= 1
            busy[each.end_s] += 1
        _pair(node, busy, record.to_s, slots_of)
    return sorted(
        Taken(start_s, node, end_s, slots)
        for (start_s, node, end_s), slots in slots_of.items()
        if end_s - start_s > SHORTEST_S
    )


def _pair(
    node: int, busy: Counter[float], to_s: float, slots_of: Counter[tuple[float, int, float]]
) -> None:
    """Jobs of a node, from the moments at which others have more or fewer slots.

    The newest job leaves first, unless another job has exactly the leaving slots.
    """
    running: list[tuple[float, int]] = []
    for at_s in sorted(at for at in busy if at < to_s):
        if busy[at_s] > 0:
            running.append((at_s, busy[at_s]))
        going = -busy[at_s]
        while going > 0:
            same = [each for each in running if each[1] == going]
            start_s, slots = each = (same or running)[-1]
            running.remove(each)
            gone = min(slots, going)
            if slots > gone:
                running.append((start_s, slots - gone))
            slots_of[start_s, node, at_s] += gone
            going -= gone
    for start_s, slots in running:
        slots_of[start_s, node, to_s] += slots


@dataclass
class Others:
    """The ordinary jobs of a run: their sizes, and the time of each request.

    `began` is the begin of the record.
    """

    box: Sandbox
    record: Record
    run: str
    began: float = 0.0
    asked: list[tuple[Taken, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._coming = taken(self.record)
        (self.box.work / "other.sh").write_text(OTHER)

    def settle(self) -> None:
        """Start the jobs of the beginning. They wait for the order to begin."""
        while self._coming and self._coming[0].start_s == 0:
            self._take(self._coming.pop(0), 0.0)
        waiting = ["squeue", "-h", "-pmain", "-tPD,CF"]
        await_(lambda: not self.box.run(waiting).stdout.strip(), "the ordinary jobs of the start")

    def play(self) -> None:
        """Submit each job at its time in the log, until the record ends."""
        self.began = time.time()
        (self.box.work / f"go-{self.run}").write_text(str(self.began))
        for each in self._coming:
            time.sleep(max(0.0, self.began + each.start_s - time.time()))
            self._take(each, time.time() - self.began)
        time.sleep(max(0.0, self.began + self.record.to_s - time.time()))

    def _take(self, one: Taken, now_s: float) -> None:
        """Submit an ordinary job for its node. It ends when the node is free in the log."""
        limit = f"--time={math.ceil((one.end_s - now_s + PATIENCE_S) / 60)}"
        words = ("-pmain", f"--nodelist={self.box.nodes[one.node]}", limit, "--output=/dev/null")
        has_part = self.record.slots > 1
        size = (f"--gres=gpu:{one.slots}", f"-c{one.slots}") if has_part else ("--exclusive",)
        name = f"{self.run}-{len(self.asked)}"
        self.asked.append((one, time.time()))
        submitted(self.box, *words, "-n1", *size, "other.sh", name, self.run, f"{one.end_s:.2f}")

    def delays(self) -> list[tuple[int, float]]:
        """The slots of each job of the record, and the seconds from its request to its start.
        Infinite: it did not start.
        """
        return [
            (one.slots, self._started(place) - asked)
            for place, (one, asked) in enumerate(self.asked)
            if one.start_s > 0
        ]

    def _started(self, place: int) -> float:
        path = self.box.work / f"other-{self.run}-{place}"
        return float(path.read_text()) if path.exists() else math.inf
