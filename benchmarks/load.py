"""Does anybody wait longer? A random rigid load on two Slurms, one of them with malleable jobs.

Run: python benchmarks/load.py [--minutes M] [--seed N]. Both clusters get the same jobs at the same
moments; the malleable jobs only sleep, so they ignore every notice. Single delays go both ways:
where fragments sit, others start on other nodes, and one different choice reorders what follows.
So besides the means, the first job in the queue is watched: it must not wait while nodes of ours,
with the idle ones, would do for it. Prints the delays and every broken promise; the last line is
one JSON object. Exit code 1 if a promise broke.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from slurm_hooks.model import FragmentState, NodeState, Snapshot
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.slurm.live import Live
from slurm_hooks.slurm.text import Command, parse_limit

NODES = 16
TICK_S = 5
KILL_WAIT_S = 5
CLOCK_S = 3.0  # two clusters, whole seconds, a scheduler that looks once a second
FIRST = "-OJobArrayID:|,NumNodes:|,TimeLimit:|"
JOBS = ("1-8", "2-6", "1-12")
SETTINGS = f"""every_s = {TICK_S}

[lease]
length_s = 120
shortest_hole_s = 60
margin_s = 35
notice_s = 5

[plan]
snooze_s = 0
"""


@dataclass
class Watch:
    """What the samples showed; `broken` maps a promise to its worst case in seconds."""

    broken: dict[str, float] = field(default_factory=dict)
    used_node_s: float = 0.0
    waiting: dict[str, datetime] = field(default_factory=dict)

    def look(self, port: Live, since_s: float) -> None:
        """One sample of the cluster with malleable jobs."""
        seen = observe(port, ["malleable"])
        on_nodes = (FragmentState.RUNNING, FragmentState.ENDING)
        fragments = [f for j in seen.jobs for f in j.fragments if f.state in on_nodes]
        self.used_node_s += since_s * sum(len(f.nodes) for f in fragments)
        for fragment in fragments:
            if fragment.end is not None and fragment.state is FragmentState.RUNNING:
                self._note(f"lease of {fragment.id}", (seen.now - fragment.end).total_seconds() - 1)
            for booked in seen.reservations:
                if fragment.nodes & booked.nodes and booked.start <= seen.now < booked.end:
                    late = (seen.now - booked.start).total_seconds()
                    self._note(f"reservation {booked.name}, {fragment.id}", late)

        self._look_at_first(port, seen, {n for f in fragments for n in f.nodes})

    def _look_at_first(self, port: Live, seen: Snapshot, ours: set[str]) -> None:
        """The first job in the queue must not wait for what it could take from us."""
        argv = ("squeue", "-h", "-p", "main", "--states=PENDING", "--sort=i", FIRST)
        rows = [line.split("|") for line in port.ask(Command(argv)).splitlines()]
        waiting = {}
        for job, nodes, limit, *_ in rows[:1]:
            until = seen.now + (parse_limit(limit.strip()) or timedelta(0))
            booked = {n for r in seen.reservations if r.start < until for n in r.nodes}
            idle = {n.name for n in seen.nodes if n.state is NodeState.FREE}
            if len((idle | ours) - booked) >= int(nodes):
                since = self.waiting.get(job, seen.now)
                waiting[job] = since
                over_s = (seen.now - since).total_seconds() - KILL_WAIT_S - CLOCK_S
                self._note(f"job {job} waited for nodes of ours", over_s)
        self.waiting = waiting

    def _note(self, what: str, over_s: float) -> None:
        if over_s > 0:
            self.broken[what] = max(over_s, self.broken.get(what, 0.0))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    spec = project_spec(nodes=NODES, kill_wait_s=KILL_WAIT_S)
    with Sandbox.up(spec) as box, Sandbox.up(spec) as twin:
        text = box.settings.read_text()
        box.settings.write_text(
            text.replace("[tick]\n", "[tick]\n" + SETTINGS.partition("\n")[0] + "\n")
        )
        with box.settings.open("a") as file:
            file.write(SETTINGS.partition("\n")[2])
        result = play(box, twin, options.minutes * 60, random.Random(options.seed))
    print(json.dumps({"benchmark": "load", "seed": options.seed, **result}))
    return 1 if result["broken"] else 0


def play(box: Sandbox, twin: Sandbox, seconds: float, chance: random.Random) -> dict[str, object]:
    """Run the load and report."""
    script = box.work / "job.sh"
    script.write_text("#!/bin/bash\nexec sleep 3600\n")
    for request in JOBS:
        box.run(["sbatch", f"--malleable={request}", "--output=/dev/null", str(script)])
    environment = {**os.environ, **box.environment}
    argv = [sys.executable, "-m", "slurm_hooks.cli", "reconcile", "--loop", str(TICK_S)]
    ticks = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL)
    watch, port = Watch(), Live(environment=environment)
    ids: list[tuple[str, str]] = []
    try:
        began = last = time.monotonic()
        due = book = 0.0
        while (now := time.monotonic()) - began < seconds:
            if now - began >= due:
                ids.append(submit(box, twin, chance))
                due = now - began + chance.uniform(6, 16)
            if now - began >= book and now - began < seconds - 150:
                reserve(box, twin, chance, len(ids))
                book = now - began + 60
            watch.look(port, now - last)
            last = now
            time.sleep(1)
    finally:
        ticks.terminate()
        ticks.wait(30)
    return report(watch, waits(box, twin, ids))


def submit(box: Sandbox, twin: Sandbox, chance: random.Random) -> tuple[str, str]:
    """The same rigid job in both; a quarter of them ask for half of the machine."""
    nodes = chance.choice((1, 1, 2, 3, 4, 8))
    limit = chance.choice((1, 1, 2, 3))
    runs = round(limit * 60 * chance.uniform(0.3, 0.95))
    argv = ["sbatch", "--parsable", "-p", "main", f"--nodes={nodes}", "--exclusive"]
    argv += [f"--time={limit}", "--output=/dev/null", f"--wrap=exec sleep {runs}"]
    return box.run(argv).stdout.strip(), twin.run(argv).stdout.strip()


def reserve(box: Sandbox, twin: Sandbox, chance: random.Random, number: int) -> None:
    """The same reservation in both, two minutes ahead, over whatever runs there."""
    first = chance.randint(1, NODES - 2)
    words = f"scontrol create reservation reservationname=r{number} starttime=now+130 duration=1 "
    words += f"users=root flags=ignore_jobs nodes=n[{first}-{first + 1}]"
    for each in (box, twin):
        each.run(words.split())


def waits(box: Sandbox, twin: Sandbox, ids: list[tuple[str, str]]) -> list[tuple[float, float]]:
    """Seconds from submission to start with and without malleable jobs, where both started."""
    found = [_waits(each) for each in (box, twin)]
    return [(found[0][a], found[1][b]) for a, b in ids if a in found[0] and b in found[1]]


def _waits(box: Sandbox) -> dict[str, float]:
    fields = "-OJobArrayID:|,State:|,SubmitTime:|,StartTime:|"
    answer = box.run(
        ["squeue", "-h", "-a", "-t", "all", "-p", "main", fields], env={"SLURM_TIME_FORMAT": "%s"}
    )
    rows = (line.split("|") for line in answer.stdout.splitlines())
    return {
        r[0].strip(): float(r[3]) - float(r[2])
        for r in rows
        if len(r) > 3 and r[1].strip() != "PENDING"
    }


def report(watch: Watch, pairs: list[tuple[float, float]]) -> dict[str, object]:
    """Delays over both clusters and broken promises."""
    delays = sorted(a - b for a, b in pairs)
    for delay in delays:
        print(f"{delay:+.0f}", end=" ", file=sys.stderr)
    print(file=sys.stderr)
    return {
        "rigid_jobs": len(pairs),
        "delay_s": {
            "median": statistics.median(delays),
            "max": delays[-1],
            "min": delays[0],
            "over_kill_wait": sum(d > KILL_WAIT_S + CLOCK_S for d in delays),
        },
        "wait_s": {
            "with": round(statistics.mean(a for a, _ in pairs), 2),
            "without": round(statistics.mean(b for _, b in pairs), 2),
        },
        "malleable_node_s": round(watch.used_node_s),
        "broken": {what: round(over, 1) for what, over in watch.broken.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
