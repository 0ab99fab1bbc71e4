"""Compare three ways to train on idle nodes: an ordinary job in a preemptible lane that Slurm
requeues, `malleable submit`, and the installed software.

A recorded week is simulated. The ordinary job has 4 nodes, a limit of a day and a file every five
minutes. `best size` is the best of 1 to 16 nodes, which is not known before. Malleable jobs have 1
to 16 nodes, and keep their state or have files only. Steps are those of a node that makes 86,400 a
day alone.

With --live a real Slurm plays some minutes of Summit's log first without such a job, then beside
each, where shells stand for trainings, and the simulation of the same minutes stands beside. The
ordinary job writes a file every minute there. The delay is the mean wait of ordinary jobs. Shells
end at once on SIGTERM: a training that saves then has KillWait.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Optional

from live_replay import PLAN, STEADY, changes, play, predicted
from parts.lane_week import FILES, JOB, KEEPS, Costs, Lane, Rules, Tally
from parts.live_machine import Others, part
from parts.live_slurm import configure, empty, submitted
from parts.printing import SAY, Row, arguments, show, tell
from parts.replay_runs import MEASURED, SETTINGS, record_of

from slurm_hooks.allocation.curves import prior
from slurm_hooks.elastic.selfservice.submit import LEASE_S
from slurm_hooks.replay import scenario
from slurm_hooks.replay.record import Record
from slurm_hooks.replay.scenario import Conditions
from slurm_hooks.replay.work import Queue
from slurm_hooks.sandbox import Sandbox, SandboxSpec
from slurm_hooks.sandbox.project import project_spec
from slurm_hooks.settings.file import load
from slurm_hooks.words.jobpath import write_job_path

LOGS = ("kth_sp2_1996", "thetagpu_2020", "summit")
ORDINARY = Rules(1, 4, 86_400.0, is_malleable=False)
SUBMITTED = Rules(JOB.max_nodes, 1, LEASE_S)
WIDTHS = (1, 2, 4, 8, 16)
LIVE_FILES = Costs(60.0)
Submit = Callable[[Sandbox], object]
SHELL = """#!/bin/bash
log={work}/fragment-${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}-${{SLURM_ARRAY_TASK_ID:-0}}.log
note() {{ echo "$EPOCHREALTIME $1 $SLURM_JOB_NUM_NODES" >>$log; }}
trap 'note taken; exit 143' TERM
note start
while :; do sleep 3600 & wait $!; done
"""


def week(log: str) -> list[Row]:
    """Return the rows of a machine."""
    record = record_of(log)
    best = max(WIDTHS, key=lambda width: _ordinary(record, width))
    ordinary, largest = _ordinary(record, ORDINARY.width), _ordinary(record, best)
    ours = [Lane(record, SUBMITTED, costs).run().steps_a_day for costs in (KEEPS, FILES)]
    installed = [_installed(record, costs) for costs in (KEEPS, FILES)]
    names = {"requeued, 4 nodes": [ordinary] * 2, f"best size: {best}": [largest] * 2}
    names |= {"malleable submit": ours, "installed": installed}
    return [
        {"log": log, "job": name, "keeps": f"{keeps:,.0f}", "files": f"{files:,.0f}"}
        for name, (keeps, files) in names.items()
    ]


def _ordinary(record: Record, width: int) -> float:
    rules = ORDINARY._replace(width=width)
    return Lane(record, rules, Costs(FILES.checkpoint_s)).run().steps_a_day


def _installed(record: Record, costs: Costs) -> float:
    conditions = Conditions(
        queue=Queue((JOB,)),
        jobs=1,
        rescale=MEASURED,
        t_fwd_s=SETTINGS.plan.horizon_s,
        tick_s=SETTINGS.tick.every_s,
        latency_s=2.0,
        checkpoint_s=costs.checkpoint_s,
        redoes_planned=costs.redoes,
    )
    outcome = scenario.run("default", record, conditions, SETTINGS)
    images = math.fsum(outcome.ledger.images.values())
    return images / JOB.rates[1] / record.window_s * 86_400


def live(record: Record) -> list[Row]:
    """Play the record on a real Slurm: alone, and beside each kind of job."""
    nodes, mirrored = record.nodes, _mirrored(record)
    jobs: dict[str, tuple[Optional[Submit], Rules, Costs]] = {
        "without": (None, ORDINARY, LIVE_FILES),
        "requeued, 4 nodes": (_requeued, ORDINARY, LIVE_FILES),
        "malleable submit": (_submitted, SUBMITTED._replace(elements=nodes), KEEPS),
    }
    rows = []
    with Sandbox.up(SandboxSpec(nodes=nodes, kill_wait_s=5)) as box:
        (box.work / "job.sh").write_text(SHELL.format(work=box.work))
        for name, (submit, rules, costs) in jobs.items():
            SAY.print(name)
            others = Others(box, record, name.split()[0])
            others.settle()
            if submit:
                submit(box)
            others.play()
            rows.append(_row(name, box, others, costs, not rules.is_malleable))
            if submit:
                rows[-1]["model"] = Lane(mirrored, rules, costs).run().steps_a_day
            empty(box, "malleable", nodes)
    SAY.print("installed")
    with Sandbox.up(project_spec(nodes=nodes, kill_wait_s=5)) as box:
        configure(box, tick=STEADY, plan=PLAN)
        others = play(box, record, 1, "installed")
        rows.append(_row("installed", box, others, KEEPS, is_gang=False))
        said = predicted(record, 1, load(box.settings), prior(max_nodes=nodes))
        rows[-1]["model"] = said["images_per_s"] * 86_400
    return rows


def _requeued(box: Sandbox) -> None:
    words = ("-pmalleable", f"-N{ORDINARY.width}", "--exclusive", "--requeue", "--time=1-0")
    submitted(box, *words, "--open-mode=append", "--output=/dev/null", "job.sh")


def _submitted(box: Sandbox) -> None:
    path = write_job_path(box.dir / "wheel" / "jobpath")
    words = [f"--malleable=1-{len(box.nodes)}", "--partition=malleable", "--output=/dev/null"]
    box.run([sys.executable, "-S", str(path), "submit", *words, "job.sh"], cwd=box.work)


def _mirrored(record: Record) -> Record:
    """Slurm gives elements the lowest idle nodes, and the simulation the highest."""
    intervals = (replace(i, node=record.nodes - 1 - i.node) for i in record.intervals)
    return replace(record, intervals=tuple(intervals))


def _row(name: str, box: Sandbox, others: Others, costs: Costs, is_gang: bool) -> dict[str, object]:
    """Return the figures of a run, and remove its notes."""
    record, tally = others.record, Tally(others.record, costs, is_gang)
    size = 0
    for each in [c for job in changes(box, others.began, record.to_s).values() for c in job]:
        size += each.by
        tally.change(each.at_s, size, each.is_loss, each.by > 0)
    for path in box.work.glob("fragment-*.log"):
        path.unlink()
    waits = [delay for _, delay in others.delays()]
    started = [delay for delay in waits if delay < math.inf]
    return {
        "job": name,
        "steps": tally.steps_a_day,
        "model": None,
        "used": tally.ledger.used_node_s / record.idle_node_s,
        "losses": tally.losses,
        "mean_wait_s": statistics.mean(started) if started else None,
        "most_s": max(started, default=None),
        "waits": f"{len(started)} of {len(waits)}",
    }


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--logs", nargs="*", default=LOGS, choices=LOGS, help="machines")
    parser.add_argument("--live", action="store_true", help="play on a real Slurm too")
    parser.add_argument("--minutes", type=float, default=6, help="of each play")
    parser.add_argument("--nodes", type=int, default=16, help="of the sandbox, at most 16")
    parser.add_argument("--compress", type=float, default=4, help="times as fast as the log")
    options = parser.parse_args()
    weeks = [row for log in options.logs for row in week(log)]
    show("steps a day in a recorded week", weeks)
    rows: list[Row] = []
    if options.live:
        record = part("summit", options.nodes, options.minutes * 60, options.compress)
        rows = live(record)
        show("on a real Slurm", rows)
    return tell("lane", weeks=weeks, live=rows)


if __name__ == "__main__":
    sys.exit(main())
