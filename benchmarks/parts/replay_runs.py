"""Recorded logs, and a line of a replay of them.

The logs do not belong to the project. They are searched beside the checkout, in `../shared/data`,
or in $MALLEABLE_DATA. Without them a benchmark says so and succeeds.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from papers import scenario as events
from parts.printing import tell, timed

from slurm_hooks.replay import scenario
from slurm_hooks.replay.costs import Rescale
from slurm_hooks.replay.dedicated import Reference, reference
from slurm_hooks.replay.record import Record
from slurm_hooks.replay.result import result
from slurm_hooks.replay.scenario import Conditions, Source
from slurm_hooks.replay.work import Queue, read_queue, read_scaling
from slurm_hooks.settings.values import Mode, Settings

SETTINGS = Settings(mode=Mode("on"))
PUBLISHED_T_FWD_S = 120.0
MEASURED = Rescale(0.3, 0.35)  # docs/lab/2026-11-20-resize.md
COLUMNS = {"summit": 1024, "summit-400": 400}
RESCALES = (Rescale(18.0, 12.0), Rescale(60.0, 40.0), Rescale(1.0, 0.7))


@dataclass(frozen=True)
class Run:
    """A line: log, queue, policy. With `tick_s` it replays the shipped programs.

    Zero is event-driven, as in papers, where latency and checkpoints do not count. If `t_fwd_s` is
    zero, the shipped value holds.
    """

    log: str
    policy: str
    jobs: int
    rescale: Rescale
    queue: str = "shufflenet"
    objective: str = ""
    ends: str = "unknown"
    tick_s: float = 0.0
    t_fwd_s: float = 0.0


def data() -> Path:
    """The directory of the logs. Without it the program ends with success."""
    named = os.environ.get("MALLEABLE_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "data"
    if not (folder / "bftrainer").is_dir():
        print(f"skipped: no recorded logs in {folder} (set MALLEABLE_DATA)", file=sys.stderr)
        sys.exit(tell("skipped", reason="no recorded logs"))
    return folder


@cache
def record_of(log: str) -> Record:
    """The log of that name: a part of Summit, or a file of traces."""
    if log in COLUMNS:
        path = data() / "bftrainer" / "summit_first.idle.csv.gz"
        source = Source("idle", path, columns=(0, COLUMNS[log] - 1))
    else:
        source = Source("swf", data() / "traces" / f"{log}.swf.gz")
    return scenario.load(source, print)


@cache
def queue_of(name: str) -> Queue:
    """A built-in queue, seed 1."""
    return read_queue(name, read_scaling(data() / "bftrainer" / "dnn_scaling.json"), seed=1)


@cache
def _reference(log: str, queue: str, jobs: int) -> Reference:
    return reference(record_of(log), queue_of(queue), jobs)


def _conditions(run: Run) -> Conditions:
    return Conditions(
        queue=queue_of(run.queue),
        jobs=run.jobs,
        rescale=run.rescale,
        t_fwd_s=run.t_fwd_s or SETTINGS.plan.horizon_s,
        tick_s=run.tick_s,
        latency_s=2.0 if run.tick_s else 0.0,
        checkpoint_s=600.0 if run.tick_s else 0.0,
        objective=run.objective,
        ends=run.ends,
    )


def measure(run: Run) -> dict[str, Any]:
    """The numbers of a line, `wall_s` included."""
    record = record_of(run.log)
    base = _reference(run.log, run.queue, run.jobs)
    conditions = _conditions(run)
    play = scenario.run if run.tick_s else events.run
    outcome, wall_s = timed(lambda: play(run.policy, record, conditions, SETTINGS))
    return {**result(outcome, record, base), "wall_s": wall_s}


def with_policy(run: Run, policy: str) -> Run:
    """The same line for another policy. The published policy looks ahead 120 s."""
    t_fwd_s = PUBLISHED_T_FWD_S if policy == "optimum" else 0.0
    return replace(run, policy=policy, t_fwd_s=t_fwd_s)


def label(rescale: Rescale) -> str:
    """A label such as 18/12."""
    return f"{rescale.up_s:g}/{rescale.down_s:g}"
