"""Measure the cost of a change of size for a training.

Every engine runs the same training on a sandbox of four nodes, a real Slurm, with the same changes.

A pause is the longest time that any survivor went without a finished step. `effect` is the time
from the request to the first step at the new size on every survivor. `slurm` is its part until the
batch script of a new fragment has started. `ours` of a restart is the time from the end of a
command to the start of the next.

A planned change is a notice and a requeue for a malleable job, as the tick does it. For the others
it is a requeue at once, SIGTERM to all processes. A preemption is an ordinary job that takes the
node of a fragment. A loss is SIGKILL to all processes of a fragment. Rank 0 of torchft is the
fragment with the lighthouse.

`again` counts steps that survivors finished twice, or tasks that a pool did twice. Lost tasks are
tasks that no worker has ended or will take.

Between two changes the training runs undisturbed for `--rest` seconds, so that warm workers are
ready again.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from parts.printing import SAY, Row, arguments, middle, show, tell
from parts.rescale_engines import ENGINES, Engine, lacking, script
from parts.rescale_fleet import Fleet, FleetError, MalleableFleet
from parts.rescale_steps import Begins, Steps, between, lost, starts

from slurm_hooks.errors import MalleableError
from slurm_hooks.model import FragmentState
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec

SIZE = 4
PATIENCE_S = 150.0
LOOK_S, ASK_S = 0.1, 1.0  # how often the steps are read, and how often Slurm is asked
REQUEUE_REST_S = 4.0  # see docs/developers/slurm-facts/times.md
RESCALED = ("malleable", "torchft", "cold", "stock")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CHANGES = (
    *("shrink", "grow", "kill", "grow", "kill rank 0", "grow", "half", "double"),
    *("preempt", "grow"),
)
LABELS = {
    "start": "start",
    "grow": "grow by one",
    "shrink": "shrink by one",
    "kill": "SIGKILL of one",
    "kill rank 0": "SIGKILL of rank 0's",
    "preempt": "preemption of one",
    "half": "4 to 2",
    "double": "2 to 4",
}


class LostError(Exception):
    """The training did not go on."""


@dataclass
class Result:
    """An engine's results for a kind of change, in seconds."""

    pauses: list[float] = field(default_factory=list)
    effects: list[float] = field(default_factory=list)
    slurm: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    again: int = 0
    tasks_lost: int = 0
    restarts: int = 0
    lost: int = 0

    @property
    def newest(self) -> str:
        """The newest entry in words."""
        if not self.pauses:
            return f"trains after {self.effects[-1]:.1f} s"
        again = f"survivors started anew {self.begins[-1]}x"
        return f"{self.pauses[-1]:.2f} s pause, effect after {self.effects[-1]:.1f} s, {again}"


@dataclass
class Change:
    """A change that was requested at `asked`: the joining, leaving and staying fragments."""

    asked: float
    coming: list[int]
    going: list[int]
    survivors: list[int]

    @property
    def size(self) -> int:
        return len(self.survivors) + len(self.coming)


class Course:
    """A training through its changes."""

    def __init__(self, engine: Engine, fleet: Fleet, work: Path, rest_s: float) -> None:
        self._engine = engine
        self._fleet = fleet
        self._work = work
        self._rest_s = rest_s
        self._steps, self._begins = Steps(work), Begins(work)
        self._running: list[int] = []
        self._lost = 0

    def start(self, row: Result) -> None:
        """Start the whole size at once. Raise LostError if it does not train."""
        begun = Change(time.time(), list(range(SIZE)), [], [])
        self._fleet.release(begun.coming)
        row.effects.append(self._settle(begun) - begun.asked)
        row.slurm.append(max(starts(self._work, begun.coming)) - begun.asked)

    def measure(self, kind: str, row: Result) -> None:
        """Make a change and note its cost. Raises LostError."""
        time.sleep(self._rest_s)
        change = self._plan(kind)
        restarts = self._begins.restarts(change.survivors)
        begun = self._begins.count(change.survivors)
        self._carry_out(kind, change)
        arrived = self._settle(change)
        since = change.asked - 0.5
        row.pauses.append(self._steps.pause(change.survivors, since))
        steps, is_pool = self._steps, self._engine.is_pool
        row.again += steps.tasks_again(since) if is_pool else steps.again(change.survivors, since)
        row.tasks_lost += self._newly_lost()
        row.effects.append(arrived - change.asked)
        ours = between(self._work, change.survivors)
        row.ours += [] if ours is None else [ours]
        row.restarts += self._begins.restarts(change.survivors) - restarts
        now = self._begins.count(change.survivors)
        row.begins.append(max(now[f] - begun[f] for f in change.survivors))
        if change.coming:
            row.slurm.append(max(starts(self._work, change.coming)) - change.asked)
        self._fleet.put_back(change.going)

    def _newly_lost(self) -> int:
        """Tasks of a pool that were lost since the last change."""
        before, self._lost = self._lost, lost(self._work) if self._engine.is_pool else 0
        return self._lost - before

    def _plan(self, kind: str) -> Change:
        first = self._engine.first(self._work)
        others = [f for f in self._running if f != first]
        going = {
            "shrink": others[-1:],
            "half": others[-2:],
            "kill": others[-1:],
            "kill rank 0": [first],
            "preempt": others[-1:],
        }.get(kind, [])
        absent = [f for f in range(SIZE) if f not in self._running]
        coming = {"grow": absent[:1], "double": absent[:2]}.get(kind, [])
        survivors = [f for f in self._running if f not in going]
        return Change(time.time(), coming, going, survivors)

    def _carry_out(self, kind: str, change: Change) -> None:
        if change.coming:
            self._fleet.release(change.coming)
        elif kind in ("shrink", "half"):
            self._fleet.dismiss(change.going)
        elif kind == "preempt":
            self._fleet.preempt(change.going)
        else:
            self._fleet.kill(change.going)

    def _settle(self, change: Change) -> float:
        """The time at which the change had taken effect, in seconds since 1970."""
        watched = change.survivors or change.coming
        deadline = time.monotonic() + PATIENCE_S
        asked = 0.0
        while time.monotonic() < deadline:
            arrived = self._steps.arrival(watched, change.size, change.asked)
            if arrived is not None:
                self._running = sorted(change.survivors + change.coming)
                return arrived
            if time.monotonic() - asked > ASK_S:
                self._raise_if_ended(change.survivors)
                asked = time.monotonic()
            time.sleep(LOOK_S)
        raise LostError(f"not training with {change.size} after {PATIENCE_S:.0f} s")

    def _raise_if_ended(self, fragments: list[int]) -> None:
        states = self._fleet.states()
        ended = {f: states[f].value for f in fragments if states[f] is not FragmentState.RUNNING}
        if ended:
            raise LostError(f"survivors have ended: {ended}")


def run_course(engine: Engine, rest_s: float, rows: dict[str, Result], label: str) -> None:
    """Take a job on a new Slurm through all changes, or until it is lost."""
    with Sandbox.up(project_spec(nodes=SIZE)) as box, engine.beside() as added:
        path = box.work / "train.sh"
        path.write_text(script(engine, box.work, added))
        fleet = (MalleableFleet if engine.request else Fleet)(box, path, engine.request, SIZE)
        course = Course(engine, fleet, box.work, rest_s)
        for kind in ("start", *CHANGES):
            row, change = rows.setdefault(kind, Result()), f"{engine.name} {label}: {LABELS[kind]}:"
            try:
                course.start(row) if kind == "start" else course.measure(kind, row)
            except LostError as error:
                row.lost += 1
                SAY.print(f"{change} job lost, {error}")
                SAY.print(f"{fleet.seen()}{evidence(box.work)}", markup=False)
                return
            except (FleetError, MalleableError) as error:  # Slurm's side failed, not the training
                SAY.print(f"{change} given up, {error}", markup=False)
                return
            SAY.print(f"{change} {row.newest}")


def evidence(work: Path) -> str:
    """The end of each fragment's log, before the sandbox is removed."""
    tails = [
        [f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-8:]]
        for log in sorted(work.glob("fragment-*.log"))
    ]
    return "\n".join(line for tail in tails for line in tail)


def summary(engine: Engine, kind: str, row: Result) -> Row:
    """Return a line of the table."""
    return {
        "engine": engine.name,
        "change": LABELS[kind],
        "median_s": middle(row.pauses, 2),
        "worst_s": round(max(row.pauses), 2) if row.pauses else None,
        "effect_s": middle(row.effects, 2),
        "slurm_s": middle(row.slurm, 2),
        "ours_s": middle(row.ours, 2),
        "count": len(row.effects),
        "done_again": row.again,
        "tasks_lost": row.tasks_lost if engine.is_pool else None,
        "restarts_used": row.restarts,
        "jobs_lost": row.lost,
    }


def stop_once(number: int, _frame: FrameType | None) -> None:
    """The first signal ends the run in order. Further signals cannot disturb the end."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def options_of() -> argparse.Namespace:
    """Return the options of the run."""
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=10, help="courses of each engine")
    parser.add_argument("--baseline-runs", type=int, help="of foreign engines (as --runs)")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=RESCALED, help="in turns")
    parser.add_argument("--rest", type=float, default=10.0, help="seconds between changes")
    options = parser.parse_args()
    if options.rest < REQUEUE_REST_S:
        parser.error(f"--rest: a node refuses a fragment that left it within {REQUEUE_REST_S} s")
    if options.baseline_runs is None:
        options.baseline_runs = options.runs
    return options


def main() -> int:
    options = options_of()
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, stop_once)
    by_engine: dict[str, dict[str, Result]] = {}
    for name in options.engines:
        if missing := lacking(ENGINES[name]):
            SAY.print(f"{ENGINES[name].name}: left out, {', '.join(missing)} is missing")
        else:
            by_engine[name] = {}
    try:
        for run in range(max(options.runs, options.baseline_runs)):
            # In turn, since other work of the host disturbs all engines.
            for name, rows in by_engine.items():
                runs = options.runs if ENGINES[name].is_ours else options.baseline_runs
                if run < runs:
                    run_course(ENGINES[name], options.rest, rows, f"{run + 1}/{runs}")
    finally:  # measurements before a signal count too
        lines = [
            summary(ENGINES[name], kind, row)
            for name, rows in by_engine.items()
            for kind, row in rows.items()
        ]
        show("pause of training when its size changes", lines)
        tell("rescale", rows=lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
