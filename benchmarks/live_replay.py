"""Play a recorded machine on a real Slurm, beside the prediction of `malleable replay`.

The nodes of Summit's log with the most changes in a part of it are played, faster than they were.
When others took such a node, an ordinary job for it is submitted, and Slurm preempts the fragment
there. Ticks at their own pace give malleable jobs the rest.

One host plays all nodes, so fragments are light: a shell notes when it starts and when SIGTERM ends
it, and tells what an agent would. (Without that the tick takes them for fragments that do not meet,
and keeps one.) So Slurm, ticks and preemptions are real, and training is modelled. A job's work is
its throughput at the size it has, from these notes. Each change costs the pauses given, each loss
the work of half a second, the mean of what the replay takes.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from parts.live_slurm import CHEAP, await_, configure, held_nodes, submitted, ticks
from parts.printing import arguments, show, tell
from parts.replay_runs import MEASURED, data

from slurm_hooks.allocation.curves import prior
from slurm_hooks.model import Curve
from slurm_hooks.replay import scenario
from slurm_hooks.replay.dedicated import reference
from slurm_hooks.replay.record import Interval, Record
from slurm_hooks.replay.result import result
from slurm_hooks.replay.scenario import Conditions, Source
from slurm_hooks.replay.work import Queue, kind
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec
from slurm_hooks.settings.file import load
from slurm_hooks.settings.values import Settings

LOST_S = 1.0  # what a loss redoes at most: the state of every second is kept
IMAGES = 1e12  # no job ends
FROM_S = 200_000.0
ARRIVAL_S = 8.0  # an ordinary job has its node within that, KillWait included
FRAGMENT = """#!/bin/bash
log={work}/fragment-$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID.log
note() {{ echo "$EPOCHREALTIME $1 $SLURMD_NODENAME" >>$log; }}
trap 'note end; exit 143' TERM
note start
{told}while :; do sleep 3600 & wait $!; done
"""


@dataclass(frozen=True)
class Taken:
    """A node that others have from `start_s` to `end_s`."""

    node: int
    start_s: float
    end_s: float


def part(nodes: int, seconds: float, compress: float) -> Record:
    """The nodes with the most changes in the part of the log that is played."""
    path = data() / "bftrainer" / "summit_first.idle.csv.gz"
    whole = scenario.load(Source("idle", path), print)
    cut = whole.between(FROM_S, FROM_S + seconds * compress)
    of_node: dict[int, list[Interval]] = defaultdict(list)
    for interval in cut.intervals:
        of_node[interval.node].append(interval)
    chosen = sorted(of_node, key=lambda n: (-len(of_node[n]), n))[:nodes]
    kept = [
        Interval(place, (i.start_s - FROM_S) / compress, (i.end_s - FROM_S) / compress)
        for place, node in enumerate(chosen)
        for i in sorted(of_node[node], key=lambda i: i.start_s)
    ]
    return Record(tuple(kept), nodes, 0.0, seconds)


def taken(record: Record) -> list[Taken]:
    """What others have, in the order in which they come."""
    found = []
    for node in range(record.nodes):
        free = [(i.start_s, i.end_s) for i in record.intervals if i.node == node]
        ends = [0.0, *(end for _, end in free)]
        starts = [*(start for start, _ in free), record.to_s]
        found += [Taken(node, a, b) for a, b in zip(ends, starts) if b - a > 0.5]
    return sorted(found, key=lambda t: (t.start_s, t.node))


def predicted(record: Record, jobs: int, settings: Settings, curve: Curve) -> dict[str, Any]:
    """What the replay says of the same record under the same settings."""
    conditions = Conditions(
        queue=Queue((kind("light", curve, (1, curve.points[-1][0]), IMAGES),)),
        jobs=jobs,
        rescale=MEASURED,
        t_fwd_s=settings.plan.horizon_s,
        tick_s=settings.tick.shortest_s,
        latency_s=1.0,
        checkpoint_s=LOST_S,
        ends="unknown",
    )
    base = reference(record, conditions.queue, jobs)
    outcome = scenario.run("default", record, conditions, settings)
    return {**result(outcome, record, base), "dedicated_images_per_s": base.total}


def play(box: Sandbox, record: Record, jobs: int) -> float:
    """Play the record; gives when it began."""
    (box.work / "job.sh").write_text(FRAGMENT.format(work=box.work, told=CHEAP))
    coming = taken(record)
    first = [t for t in coming if t.start_s == 0]
    for each in first:
        take(box, each, 0.0)
    most = min(64, record.nodes)
    for _ in range(jobs):
        submitted(box, f"--malleable=1-{most}", "--output=/dev/null", "job.sh")
    await_(lambda: held_nodes(box, "main") >= len(first), "the ordinary jobs of the beginning")
    began = time.time()
    with ticks(box):
        for each in coming[len(first) :]:
            time.sleep(max(0.0, began + each.start_s - time.time()))
            take(box, each, time.time() - began)
        time.sleep(max(0.0, began + record.to_s - time.time()))
    return began


def take(box: Sandbox, one: Taken, now_s: float) -> None:
    """An ordinary job for its node, until the log has it free again."""
    runs = max(0.1, one.end_s - now_s)
    limit = math.ceil(runs / 60) + 1
    words = ("-pmain", f"--nodelist={box.nodes[one.node]}", "--exclusive", f"--time={limit}")
    submitted(box, *words, "--output=/dev/null", f"--wrap=exec sleep {runs:.2f}")


@dataclass(frozen=True)
class Change:
    """A job's size changes by `by` at `at_s`; a loss if others took the node then."""

    at_s: float
    by: int
    is_loss: bool = False


def changes(box: Sandbox, began: float, record: Record) -> dict[str, list[Change]]:
    """What the fragments noted, by job."""
    found: dict[str, list[Change]] = defaultdict(list)
    arrivals = defaultdict(list)
    for one in taken(record):
        arrivals[box.nodes[one.node]].append(one.start_s)
    for path in sorted(box.work.glob("fragment-*.log")):
        job = path.stem.split("-")[1]
        is_running = False
        for line in path.read_text().splitlines():
            at, kind_, node = line.split()
            at_s, is_start = float(at) - began, kind_ == "start"
            if at_s <= record.to_s and is_start != is_running:
                is_running = is_start
                came = any(0 <= at_s - start_s < ARRIVAL_S for start_s in arrivals[node])
                found[job].append(Change(at_s, 1 if is_start else -1, came and not is_start))
    return {job: sorted(each, key=lambda c: c.at_s) for job, each in found.items()}


def worked(each: Sequence[Change], curve: Curve, until_s: float) -> tuple[float, float, int]:
    """Work, node-seconds and losses of one job."""
    work = used = 0.0
    size = losses = 0
    moments = [*each, Change(until_s, 0)]
    ready_s = last_s = 0.0
    for change in moments:
        span = change.at_s - last_s
        used += size * span
        work += curve(size) * max(0.0, change.at_s - max(last_s, ready_s))
        if change.is_loss:
            work -= curve(size) * LOST_S / 2
            losses += 1
        size += change.by
        pause = MEASURED.up_s if change.by > 0 else MEASURED.down_s
        last_s, ready_s = change.at_s, change.at_s + (pause if change.by else 0.0)
    return work, used, losses


def measured(box: Sandbox, began: float, record: Record, curve: Curve) -> dict[str, Any]:
    """What the run was worth."""
    rows = [worked(each, curve, record.to_s) for each in changes(box, began, record).values()]
    return {
        "images_per_s": math.fsum(work for work, _, _ in rows) / record.window_s,
        "used_node_s": math.fsum(used for _, used, _ in rows),
        "losses": sum(losses for _, _, losses in rows),
    }


def ticked(lines: Iterable[str]) -> int:
    """How many ticks there were."""
    return sum(line.startswith("tick at") for line in lines)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="of play")
    parser.add_argument("--nodes", type=int, default=64, help="of the log and the sandbox")
    parser.add_argument("--jobs", type=int, default=10, help="malleable ones")
    parser.add_argument("--compress", type=float, default=4, help="times as fast as the log")
    options = parser.parse_args()
    record = part(options.nodes, options.minutes * 60, options.compress)
    with Sandbox.up(project_spec(nodes=options.nodes, kill_wait_s=5)) as box:
        configure(box, plan=f"grow_s = {MEASURED.up_s}\nshrink_s = {MEASURED.down_s}\n")
        settings = load(box.settings)
        curve = prior(max_nodes=min(64, options.nodes))
        began = play(box, record, options.jobs)
        run = measured(box, began, record, curve)
        run["ticks"] = ticked((box.work / "ticks.log").read_text().splitlines())
    every_s = options.minutes * 60 / max(1, run["ticks"])
    said = predicted(record, options.jobs, settings, curve)
    paced = replace(settings.tick, shortest_s=max(1.0, every_s))
    slow = predicted(record, options.jobs, replace(settings, tick=paced), curve)
    found = {
        **vars(options),
        "changes": len(record.intervals),
        "idle_nodes": round(record.equivalent_nodes, 2),
        "efficiency_run": run["images_per_s"] / said["dedicated_images_per_s"],
        "efficiency_replay": said["efficiency"],
        "efficiency_replay_at_the_pace_of_the_run": slow["efficiency"],
        "seconds_between_ticks": every_s,
        "used_share_run": run["used_node_s"] / record.idle_node_s,
        "used_share_replay": said["used_share"],
        "losses_run": run["losses"],
        "losses_replay": said["preempted_nodes"],
        "load": os.getloadavg()[1],
    }
    show("run and replay", [found])
    return tell("live-replay", **found)


if __name__ == "__main__":
    sys.exit(main())
