"""Compare three ways to train on idle nodes: an ordinary job in a preemptible lane that Slurm
requeues, `malleable submit`, and the installed software.

A recorded week is simulated. The ordinary job has 4 nodes, a limit of a day and a file every five
minutes. `best size` is the best of 1 to 16 nodes, which is not known before. Malleable jobs have 1
to 16 nodes, and keep their state or have files only. Steps are those of a node that makes 86,400 a
day alone.

With --live real Slurms play a part of Summit's log side by side: without such a job, and beside
each. Shells stand for trainings. Limits of elements are as much shorter as the log is faster, and
so is the time for which Slurm keeps the ordinary job back. Steps, pauses and files are in the time
of the log, as in the simulation of the same hours that stands beside. All else that Slurm needs
counts `--compress` times. The delay is the wait of ordinary jobs, in real time. Shells end at once
on SIGTERM: a training that saves then has KillWait.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import Optional

from live_replay import PLAN, changes, play
from parts.lane_week import FILES, HELD_S, JOB, KEEPS, Costs, Lane, Rules, Tally
from parts.live_machine import Others, part
from parts.live_slurm import configure, submitted
from parts.printing import Row, arguments, show, tell
from parts.replay_runs import MEASURED, SETTINGS, record_of

from slurm_hooks.elastic.selfservice.submit import LEASE_S
from slurm_hooks.protocol.jobpath import write_job_path
from slurm_hooks.replay import scenario
from slurm_hooks.replay.record import Record
from slurm_hooks.replay.scenario import Conditions
from slurm_hooks.replay.work import Queue
from slurm_hooks.sandbox import Sandbox, SandboxSpec
from slurm_hooks.sandbox.project import project_spec

LOGS = ("kth_sp2_1996", "thetagpu_2020", "summit")
ORDINARY = Rules(1, 4, 86_400.0, is_malleable=False)
SUBMITTED = Rules(JOB.max_nodes, 1, LEASE_S)
WIDTHS = (1, 2, 4, 8, 16)
TICKS = "every_s = 1\n"  # even so they are rarer in the time of the log
SHELL = """#!/bin/bash
log={work}/fragment-${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}-${{SLURM_ARRAY_TASK_ID:-0}}.log
note() {{ echo "$EPOCHREALTIME $1 $SLURM_JOB_NUM_NODES" >>$log; }}
leave() {{
  note left
  trap 'exit 143' TERM
  scontrol requeue ${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID
}}
trap 'note taken; exit 143' TERM
trap leave URG
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


def live(record: Record, compress: float) -> list[Row]:
    """Play the record on real Slurms: alone, and beside each kind of job."""
    pace = Pace(record, compress)
    with ThreadPoolExecutor(len(PLAYS)) as pool:
        return list(pool.map(lambda each: each(pace), PLAYS))


@dataclass(frozen=True)
class Pace:
    """A record as it is played, so many times as fast as its log."""

    record: Record
    compress: float

    @property
    def slow(self) -> Record:
        """The record in the time of the log, on nodes from which Slurm takes the lowest first, and
        the simulation the highest.
        """
        last = self.record.nodes - 1
        intervals = tuple(
            replace(
                i, node=last - i.node, start_s=self.in_log(i.start_s), end_s=self.in_log(i.end_s)
            )
            for i in self.record.intervals
        )
        return replace(self.record, intervals=intervals, to_s=self.in_log(self.record.to_s))

    def in_log(self, seconds: float) -> float:
        """Return how long this is in the log."""
        return seconds * self.compress

    def minutes(self, seconds: float) -> str:
        """Return the option for a limit of so many seconds of the log."""
        return f"{max(1, round(seconds / self.compress / 60))}"


Submit = Callable[[Sandbox, Pace], None]


def _plain(pace: Pace, name: str, submit: Optional[Submit], rules: Rules, costs: Costs) -> Row:
    with Sandbox.up(SandboxSpec(nodes=pace.record.nodes, kill_wait_s=5)) as box:
        (box.work / "job.sh").write_text(SHELL.format(work=box.work))
        others = Others(box, pace.record, name.split(maxsplit=1)[0])
        others.settle()
        if submit:
            submit(box, pace)
        with _released(box, HELD_S / pace.compress) if not rules.is_malleable else nullcontext():
            others.play()
        row = _row(name, box, others, pace, costs, not rules.is_malleable)
    if submit:
        row["model"] = Lane(pace.slow, rules, costs).run().steps_a_day
    return row


def _alone(pace: Pace) -> Row:
    return _plain(pace, "without", None, SUBMITTED, KEEPS)


def _ordinary_live(pace: Pace) -> Row:
    def submit(box: Sandbox, pace: Pace) -> None:
        limit = f"--time={pace.minutes(ORDINARY.lease_s)}"
        words = ("-pmalleable", f"-N{ORDINARY.width}", "--exclusive", "--requeue", limit)
        submitted(box, *words, "--open-mode=append", "--output=/dev/null", "job.sh")

    return _plain(pace, "requeued, 4 nodes", submit, ORDINARY, Costs(FILES.checkpoint_s))


def _submitted_live(pace: Pace) -> Row:
    def submit(box: Sandbox, pace: Pace) -> None:
        path = write_job_path(box.dir / "wheel" / "jobpath")
        words = [f"--malleable=1-{len(box.nodes)}", f"--lease={pace.minutes(LEASE_S)}"]
        words += ["--partition=malleable", "--output=/dev/null"]
        box.run([sys.executable, "-S", str(path), "submit", *words, "job.sh"], cwd=box.work)

    rules = SUBMITTED._replace(elements=pace.record.nodes)
    return _plain(pace, "malleable submit", submit, rules, KEEPS)


def _installed_live(pace: Pace) -> Row:
    with Sandbox.up(project_spec(nodes=pace.record.nodes, kill_wait_s=5)) as box:
        configure(box, tick=TICKS, plan=PLAN)
        others = play(box, pace.record, 1, "installed")
        row = _row("installed", box, others, pace, KEEPS, is_gang=False)
        row["model"] = _installed(pace.slow, KEEPS)
    return row


PLAYS = (_alone, _ordinary_live, _submitted_live, _installed_live)


@contextmanager
def _released(box: Sandbox, held_s: float) -> Iterator[None]:
    """Let the requeued job start after `held_s`."""
    is_over = Event()

    def loop() -> None:
        while not is_over.wait(1.0):
            asked = box.run(["squeue", "-h", "-pmalleable", "-tPD", "-o%i %r"], check=False)
            waiting = asked.stdout.split()
            if waiting[1:] == ["BeginTime"]:
                is_over.wait(held_s)
                box.run(["scontrol", "update", f"jobid={waiting[0]}", "StartTime=now"], check=False)

    thread = Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _row(
    name: str, box: Sandbox, others: Others, pace: Pace, costs: Costs, is_gang: bool
) -> dict[str, object]:
    """Return the figures of a run."""
    slow, tally = pace.slow, Tally(pace.slow, costs, is_gang)
    size = 0
    noted = changes(box, others.began, others.record.to_s).values()
    for each in [change for job in noted for change in job]:
        size += each.by
        tally.change(pace.in_log(each.at_s), size, each.is_loss, each.by > 0)
    waits = [delay for _, delay in others.delays()]
    started = [delay for delay in waits if delay < math.inf]
    return {
        "job": name,
        "steps": tally.steps_a_day,
        "model": None,
        "used": tally.ledger.used_node_s / slow.idle_node_s,
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
        rows = live(record, options.compress)
        show("on a real Slurm", rows)
    return tell("lane", weeks=weeks, live=rows)


if __name__ == "__main__":
    sys.exit(main())
