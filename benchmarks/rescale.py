"""What a change of size costs a training: `python benchmarks/rescale.py [--runs=10]`.

Every engine runs the same training on this host, four agents as processes, and lives through
the same changes. A pause is the longest time without a finished step, as the survivors see it;
`effect` is how long it takes from the request to the first step at the new size. Stock torchrun
gets the best it can have: its rendezvous store on a host that is never lost (this process), and
TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, without which the loss of rank 0's node loses the job. It
knows no notice, so a planned change ends a fragment as Slurm does: SIGTERM to all its processes.

Prints progress and a table; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from elastic.gang import Gang  # noqa: E402  (the tests' way to start agents on one host)
from slurm_hooks.jobpath import write_job_path  # noqa: E402

SIZE, NNODES = 4, "1:8"
PATIENCE_S = 150.0
REST_S = 4.0  # between two changes; real ones are minutes apart
CHANGES = ("shrink", "grow", "kill", "grow", "kill rank 0", "grow", "half", "double")
LABELS = {
    "grow": "grow by one",
    "shrink": "shrink by one",
    "kill": "SIGKILL of one",
    "kill rank 0": "SIGKILL of rank 0's",
    "half": "4 to 2",
    "double": "2 to 4",
}


class LostError(Exception):
    """The training did not go on."""


class Malleable(Gang):
    """Our engine, as a job has it: the defaults of a site."""

    name = "torchrun engine"

    def environment(self, fragment: int, nnodes: str, restarts: int = 0) -> dict[str, str]:
        env = super().environment(fragment, nnodes, restarts)
        for knob in ("LAST_CALL_S", "KEEP_ALIVE_S", "BEAT_S", "SETTLE_S"):
            env.pop(f"MALLEABLE_{knob}")
        return env

    def ask_to_leave(self, *fragments: int) -> None:
        self.notify(*fragments)


class Cold(Malleable):
    """The same without warm workers."""

    name = "without warm workers"

    def environment(self, fragment: int, nnodes: str, restarts: int = 0) -> dict[str, str]:
        return {**super().environment(fragment, nnodes, restarts), "MALLEABLE_WARM": "0"}


class Stock(Gang):
    """torchrun as it comes, with the store of its rendezvous out of harm's way."""

    name = "stock torchrun"

    def __init__(self, job_path: Path, work: Path) -> None:
        from torch.distributed import TCPStore  # noqa: PLC0415  (only this engine needs it)

        super().__init__(job_path, work)
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def environment(self, fragment: int, nnodes: str, restarts: int = 0) -> dict[str, str]:
        env = super().environment(fragment, nnodes, restarts)
        kept = {k: v for k, v in env.items() if not k.startswith("MALLEABLE_")}
        return {
            **kept,
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": f"127.0.0.1:{self._store.port}",
            "PET_RDZV_CONF": "is_host=false",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }

    def ask_to_leave(self, *fragments: int) -> None:
        for fragment in fragments:
            self.cut_off(fragment, signal.SIGTERM)


ENGINES = {"malleable": Malleable, "cold": Cold, "stock": Stock}


@dataclass
class Course:
    """One training through its changes."""

    gang: Malleable | Stock
    starts: dict[int, int] = field(default_factory=dict)

    def add(self, count: int) -> None:
        absent = [f for f in range(1, SIZE + 1) if f not in self.running()]
        for fragment in absent[:count]:
            self.starts[fragment] = self.starts.get(fragment, -1) + 1
            self.gang.start(fragment, NNODES, 0, restarts=self.starts[fragment])

    def running(self) -> list[int]:
        return [f for f, agent in self.gang.agents.items() if agent.poll() is None]

    def rank_zero(self) -> int:
        first = [b for b in self.gang.begins() if b["rank"] == 0][-1]["agent"]
        return next(f for f, agent in self.gang.agents.items() if agent.pid == first)

    def others(self) -> list[int]:
        return sorted(f for f in self.running() if f != self.rank_zero())

    def change(self, kind: str) -> tuple[int, list[int]]:
        """Ask for it; the size that must come of it, and who goes."""
        going: list[int] = []
        if kind in ("grow", "double"):
            self.add(1 if kind == "grow" else 2)
            return len(self.running()), going
        if kind == "shrink":
            going = self.others()[-1:]
            self.gang.ask_to_leave(*going)
        elif kind == "half":
            going = self.others()[-2:]
            self.gang.ask_to_leave(*going)
        else:
            going = [self.rank_zero()] if kind == "kill rank 0" else self.others()[-1:]
            for fragment in going:
                self.gang.cut_off(fragment, signal.SIGKILL)
        return len([f for f in self.running() if f not in going]), going

    def settle(self, size: int, since: float, survivors: list[int]) -> float:
        """Time of the first step at `size` after `since` that a few others followed."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            after = [(t, w) for t, _, w in self.gang.steps() if t > since]
            if len(after) > 5 and all(w == size for _, w in after[-5:]):
                return next(t for t, w in after if w == size)
            if any(self.gang.agents[f].poll() is not None for f in survivors):
                raise LostError("a survivor's agent ended")
            time.sleep(0.1)
        raise LostError(f"not training with {size} after {PATIENCE_S:.0f} s")


def used(begins: list[dict[str, float]], agents: set[int]) -> int:
    """How much of their budgets of restarts these agents have used, together."""
    last = {b["agent"]: int(b["restarts"]) for b in begins if b["agent"] in agents}
    return sum(last.values())


@dataclass
class Row:
    """What one engine made of one kind of change; seconds."""

    pauses: list[float] = field(default_factory=list)
    effects: list[float] = field(default_factory=list)
    restarts: int = 0
    lost: int = 0


def measure(course: Course, kind: str, row: Row) -> None:
    before = course.running()
    asked = time.time()
    begun = course.gang.begins()
    size, going = course.change(kind)
    survivors = [f for f in before if f not in going]
    arrived = course.settle(size, asked, survivors)
    times = [t for t, _, _ in course.gang.steps() if asked - 0.5 < t]
    row.pauses.append(max(b - a for a, b in zip(times, times[1:])))
    row.effects.append(arrived - asked)
    stayed = {course.gang.agents[f].pid for f in survivors}
    row.restarts += used(course.gang.begins(), stayed) - used(begun, stayed)
    with contextlib.suppress(Exception):
        course.gang.wait_exit(*going)


def run_engine(engine: str, runs: int, rows: dict[tuple[str, str], Row], say: Console) -> None:
    for run in range(runs):
        with tempfile.TemporaryDirectory(prefix="rescale-") as place:
            work = Path(place)
            gang = ENGINES[engine](write_job_path(work / "jobpath"), work)
            gang.script = Path(__file__).with_name("rescale_train.py")
            course = Course(gang)
            try:
                one_course(engine, course, rows, f"{run + 1}/{runs}", say)
            finally:
                gang.stop()


def one_course(
    engine: str, course: Course, rows: dict[tuple[str, str], Row], label: str, say: Console
) -> None:
    course.add(SIZE)
    course.settle(SIZE, 0.0, [])
    for kind in CHANGES:
        time.sleep(REST_S)
        row = rows.setdefault((engine, kind), Row())
        try:
            measure(course, kind, row)
        except LostError as lost:
            row.lost += 1
            say.print(f"{ENGINES[engine].name} {label}: {LABELS[kind]}: job lost, {lost}")
            return
        told = f"{row.pauses[-1]:.2f} s pause, {row.effects[-1]:.1f} s to take effect"
        say.print(f"{ENGINES[engine].name} {label}: {LABELS[kind]}: {told}")


def summary(engine: str, kind: str, row: Row) -> dict[str, object]:
    def middle(values: list[float]) -> float | None:
        return round(statistics.median(values), 2) if values else None

    return {
        "engine": ENGINES[engine].name,
        "change": LABELS[kind],
        "median_s": middle(row.pauses),
        "worst_s": round(max(row.pauses), 2) if row.pauses else None,
        "effect_s": middle(row.effects),
        "count": len(row.pauses),
        "restarts_used": row.restarts,
        "jobs_lost": row.lost,
    }


def show(lines: list[dict[str, object]], say: Console) -> None:
    table = Table("engine", "change", title="Pause of training when its size changes")
    for title in ("median s", "worst s", "takes effect s", "of", "restarts used", "jobs lost"):
        table.add_column(title, justify="right")
    for line in lines:
        table.add_row(*("" if value is None else str(value) for value in line.values()))
    say.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10, help="courses of our engine")
    parser.add_argument("--baseline-runs", type=int, help="of the others (default: --runs)")
    parser.add_argument("--engines", default=",".join(ENGINES), help=f"of {', '.join(ENGINES)}")
    options = parser.parse_args()
    say = Console(soft_wrap=True)
    rows: dict[tuple[str, str], Row] = {}
    for engine in options.engines.split(","):
        others = options.runs if options.baseline_runs is None else options.baseline_runs
        run_engine(engine, options.runs if engine == "malleable" else others, rows, say)
    lines = [summary(engine, kind, row) for (engine, kind), row in rows.items()]
    show(lines, say)
    print(json.dumps({"rows": lines}))


if __name__ == "__main__":
    main()
