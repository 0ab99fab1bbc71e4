"""Play a recorded machine on a real Slurm, beside the prediction of `malleable replay`.

The benchmark plays the nodes of a log with the most changes in a part of it, faster than in the
record. When other jobs took such a node, or GPUs of it, an ordinary job for them is submitted, and
Slurm preempts the fragments there. Ticks every 5 s give malleable jobs the rest. Summit has
whole nodes. The other logs have nodes of 8 GPUs (simulated, not measured), and malleable jobs count
GPUs. The ordinary jobs are first played without malleable jobs, and both delays are shown.

The host plays all nodes, so fragments are light. A shell notes its start and its end, writes an
agent's reports, and leaves at a notice as an agent does. So Slurm, ticks and preemptions are real,
and training is modelled. A job's work is the throughput of its sizes, from these notes. Each change
costs the given pauses. Each loss costs the work of half a second, the mean of the replay's loss.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any

from parts.live_machine import LOGS, Others, part
from parts.live_slurm import CHEAP, await_, configure, empty, submitted, ticks
from parts.printing import arguments, show, tell
from parts.replay_runs import MEASURED

from slurm_hooks.allocation.curves import prior
from slurm_hooks.model import Curve
from slurm_hooks.replay import scenario
from slurm_hooks.replay.dedicated import reference
from slurm_hooks.replay.record import Record
from slurm_hooks.replay.result import result
from slurm_hooks.replay.scenario import Conditions
from slurm_hooks.replay.work import Queue, kind
from slurm_hooks.replay.world.member import Member
from slurm_hooks.replay.world.planners import Shipped
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec
from slurm_hooks.settings.file import load
from slurm_hooks.settings.values import Settings
from slurm_hooks.tick.entry_points import find_objective

LOST_S = 1.0  # the most that a loss repeats: the state of every second is kept
IMAGES = 1e12  # no job ends
# Ticks run every 5 s on a busy host too. Shells report no rates, so no curve can be learned.
STEADY = "every_s = 5\n"
PLAN = f"grow_s = {MEASURED.up_s}\nshrink_s = {MEASURED.down_s}\n\n[learn]\nenabled = false\n"
MOST = 64  # the share that a malleable job may have
FRAGMENT = """#!/bin/bash
log={work}/fragment-$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID.log
note() {{ echo "$EPOCHREALTIME $1 ${{SLURM_GPUS_ON_NODE:-1}}" >>$log; }}
leave() {{
  note left
  trap 'exit 143' TERM
  scontrol update jobid=$job "comment=leaving{{${{SLURM_RESTART_COUNT:-0}}}};h{{1}}"
  scontrol uhold $job
  scontrol requeue $job
}}
trap 'note taken; exit 143' TERM
trap leave URG
note start
{report}while :; do sleep 3600 & wait $!; done
"""


class Unknowing(Shipped):
    """The shipped planner, where curves are unknown and not learned."""

    def curves(self, _members: Iterable[Member]) -> dict[int, Curve]:
        """No curve is known: jobs have equal shares."""
        return {}


def predicted(
    record: Record, jobs: int, settings: Settings, curve: Curve, latency_s: float = 1.0
) -> dict[str, Any]:
    """The prediction of the replay for the same record under the same settings."""
    conditions = Conditions(
        queue=Queue((kind("light", curve, (1, curve.points[-1][0]), IMAGES),)),
        jobs=jobs,
        rescale=MEASURED,
        t_fwd_s=settings.plan.horizon_s,
        tick_s=settings.tick.every_s,
        latency_s=latency_s,
        checkpoint_s=LOST_S,
        ends="unknown",
        unit=int(record.slots > 1),
    )
    base = reference(record, conditions.queue, jobs)
    planner = Unknowing(find_objective(settings.plan.objective))
    outcome = scenario.world_of(record, conditions, settings, planner).run()
    return {**result(outcome, record, base), "dedicated_images_per_s": base.total}


def play(box: Sandbox, record: Record, jobs: int, run: str = "with") -> Others:
    """Play the record beside so many malleable jobs. Without malleable jobs no tick runs."""
    (box.work / "job.sh").write_text(FRAGMENT.format(work=box.work, report=CHEAP))
    others = Others(box, record, run)
    others.settle()
    if not jobs:
        others.play()
        return others
    most = min(MOST, record.nodes * record.slots)
    unit = ",unit=gpu" if record.slots > 1 else ""
    for _ in range(jobs):
        submitted(box, f"--malleable=1-{most}{unit}", "--output=/dev/null", "job.sh")
    with ticks(box):
        await_((box.work / "ticks.log").read_text, "the first tick")
        others.play()
    return others


@dataclass(frozen=True)
class Change:
    """A job's size changes by `by` at `at_s`. It is a loss if the job had no notice before."""

    at_s: float
    by: int
    is_loss: bool = False


def changes(box: Sandbox, began: float, to_s: float) -> dict[str, list[Change]]:
    """The notes of the fragments, by job."""
    by_job: dict[str, list[Change]] = defaultdict(list)
    for path in sorted(box.work.glob("fragment-*.log")):
        job = path.stem.split("-")[1]
        size = 0
        for line in path.read_text().splitlines():
            at, word, slots = line.split()
            at_s, now = max(0.0, float(at) - began), int(slots) if word == "start" else 0
            if at_s <= to_s and now != size:
                by_job[job].append(Change(at_s, now - size, word == "taken"))
                size = now
    return {job: sorted(each, key=lambda c: c.at_s) for job, each in by_job.items()}


def worked(each: Sequence[Change], curve: Curve, until_s: float) -> tuple[float, float, int]:
    """Work, node-seconds and losses of a job."""
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
    """The worth of the run."""
    noted = changes(box, began, record.to_s)
    looked = looks(box, began)
    rows = [worked(each, curve, record.to_s) for each in noted.values()]
    return {
        "images_per_s": math.fsum(work for work, _, _ in rows) / record.window_s,
        "used_node_s": math.fsum(used for _, used, _ in rows),
        "losses": sum(losses for _, _, losses in rows),
        "ticks": len(looked),
        "latency_s": latency_s(chain(*noted.values()), looked),
    }


def delayed(others: Others) -> dict[str, Any]:
    """The waits of the ordinary jobs, and of whole-node jobs separately."""
    every = others.delays()
    delays = sorted(delay for _, delay in every)
    return {
        "jobs": len(delays),
        "p50_s": statistics.median(delays),
        "p90_s": delays[len(delays) * 9 // 10],
        "most_s": delays[-1],
        "most_of_whole_nodes_s": max(
            (delay for slots, delay in every if slots == others.record.slots), default=None
        ),
    }


def looks(box: Sandbox, began: float) -> list[float]:
    """The times at which ticks read the machine, to a second."""
    lines = (box.work / "ticks.log").read_text().splitlines()
    said = [" ".join(line.split()[2:4]) for line in lines if line.startswith("tick at")]
    return [datetime.fromisoformat(f"{at}+00:00").timestamp() + 0.5 - began for at in said]


def latency_s(noted: Iterable[Change], looked: Sequence[float]) -> float:
    """The median time from the last reading before a start to this start."""
    starts = [change.at_s for change in noted if change.by > 0]
    return statistics.median(at - max((s for s in looked if s <= at), default=at) for at in starts)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--log", choices=LOGS, default="summit")
    parser.add_argument("--minutes", type=float, default=5, help="of play")
    parser.add_argument("--nodes", type=int, default=64, help="of the log and the sandbox")
    parser.add_argument("--jobs", type=int, default=10, help="malleable ones")
    parser.add_argument("--compress", type=float, default=4, help="times as fast as the log")
    options = parser.parse_args()
    record = part(options.log, options.nodes, options.minutes * 60, options.compress)
    shared = {"gpus": record.slots, "cpus": record.slots} if record.slots > 1 else {}
    with Sandbox.up(project_spec(nodes=options.nodes, kill_wait_s=5, **shared)) as box:
        configure(box, tick=STEADY, plan=PLAN)
        settings = load(box.settings)
        curve = prior(max_nodes=min(MOST, options.nodes * record.slots))
        delays = {"without": delayed(play(box, record, 0, "without"))}
        empty(box, "malleable", options.nodes)
        others = play(box, record, options.jobs)
        delays["with"] = delayed(others)
        run = measured(box, others.began, record, curve)
    every_s = options.minutes * 60 / max(1, run["ticks"])
    said = predicted(record, options.jobs, settings, curve)
    paced = replace(settings.tick, every_s=max(1.0, every_s))
    slow = predicted(record, options.jobs, replace(settings, tick=paced), curve, run["latency_s"])
    figures = {
        **vars(options),
        "changes": len(record.intervals),
        "idle_nodes": round(record.equivalent_nodes, 2),
        "efficiency_run": run["images_per_s"] / said["dedicated_images_per_s"],
        "efficiency_replay": said["efficiency"],
        "efficiency_replay_at_the_pace_of_the_run": slow["efficiency"],
        "seconds_between_ticks": every_s,
        "seconds_from_look_to_start": run["latency_s"],
        "used_share_run": run["used_node_s"] / record.idle_node_s,
        "used_share_replay": said["used_share"],
        "used_share_replay_at_the_pace_of_the_run": slow["used_share"],
        "losses_run": run["losses"],
        "losses_replay": said["preempted_nodes"],
        "load": os.getloadavg()[1],
    }
    show("run and replay", [figures])
    show("delays of ordinary jobs", [{"malleable jobs": who, **row} for who, row in delays.items()])
    return tell("live-replay", **figures, delays=delays)


if __name__ == "__main__":
    sys.exit(main())
