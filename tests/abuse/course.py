"""Malleable jobs that train while somebody disturbs them, ticks as a site runs them, and a verdict.

At its end no training may be lost, no ordinary job
may have waited for ours, and no tick may have crashed or cancelled a job that goes on.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from faults.checker import HEALTHY, NODES
from promises.bench import TRAINER, WITH_TORCHRUN, Bench
from promises.churn_checker import (
    JOBS,
    OTHERS,
    OURS,
    RESERVATIONS,
    Job,
    Known,
    Look,
    Rule,
    faults_in,
    parse_look,
    waits_for_us,
)
from slurm_hooks.errors import MalleableError

EPOCH = {"SLURM_TIME_FORMAT": "%s"}
PARTS = "parts"
TINY = Path(__file__).resolve().parents[1] / "elastic" / "train_tiny.py"
TORCHRUN = (
    f"{WITH_TORCHRUN} OMP_NUM_THREADS=1 TRAIN_STEP_S=0.4\nexec torchrun {TINY} {{work}} 999999"
)
COUNT = (
    "while [ ! -e {work}/enough ]; do sleep 1; "
    '[ "${{MALLEABLE_RANK:-0}}" = 0 ] && echo "$(date +%s) 0 ${{MALLEABLE_WORLD_SIZE:-1}}" '
    ">>{work}/steps.log; done; touch {work}/finished"
)
RUN = f"{WITH_TORCHRUN}\nexec malleable run -- sh -c '{COUNT}'"
WAIT_S = 45.0  # of an ordinary job, only because of ours: on a busy host
BAD_EXITS = (70, 76)  # a bug, and output that cannot be read


@dataclass(frozen=True)
class Made:
    """A malleable job. A job of a fixed size loses no element by a cancel: it would be over."""

    request: str
    script: str
    count: int
    is_fixed: bool = False
    options: tuple[str, ...] = ()


# All jobs of a course can train side by side on eight nodes.
GANGS = (
    Made("1-4", TORCHRUN, 4),
    Made("2-8", TORCHRUN, 8),
    Made("4-4", TORCHRUN, 4, is_fixed=True),
    Made("1-2,engine=command", RUN, 2),
)
MIXED = (
    Made("1-4", TORCHRUN, 4),
    Made("4-4,engine=command", RUN, 4, is_fixed=True),
    Made("1-3,engine=command", RUN, 3),
    Made("1-3,engine=pool", COUNT, 3),
)
PARTS_TOO = (
    Made("1-4", TORCHRUN, 4),
    Made("1-6,unit=task", TORCHRUN, 6, options=("--cpus-per-task=1",)),
    Made("2-2,unit=task", TORCHRUN, 2, True, ("--cpus-per-task=1",)),
)


@dataclass
class Course:
    """The jobs, the readings of Slurm, and what was done. `cancelled` are the elements and jobs
    that people cancelled, and when. `nodes_out` are the nodes that they took out of service.
    """

    bench: Bench
    journal: Path
    user: str = TRAINER
    jobs: dict[int, Made] = field(default_factory=dict)
    places: dict[int, Path] = field(default_factory=dict)
    cancelled: dict[str, float] = field(default_factory=dict)
    nodes_out: dict[str, float] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.time)
    calmed: float = 0.0
    ended: float = 0.0

    @contextmanager
    def ticks(self) -> Iterator[None]:
        """Ticks of `malleable reconcile --loop`, as a site runs them."""
        argv = [sys.executable, "-m", "slurm_hooks.cli", "reconcile", "--loop", "--json"]
        env = {**os.environ, **self.bench.box.environment}
        with (self.journal.with_suffix(".ticks")).open("w") as out, self._errors.open("w") as err:
            process = subprocess.Popen(argv, env=env, stdout=out, stderr=err)
            try:
                yield
                if process.poll() is not None:
                    self.faults.append(f"the loop of ticks ended with {process.returncode}")
            finally:
                process.terminate()
                process.wait(60)

    @property
    def _errors(self) -> Path:
        return self.journal.with_suffix(".errors")

    def start(self, kinds: Sequence[Made]) -> None:
        for made in kinds:
            self._submit(made)
        self.look()

    def look(self) -> Look:
        """Read Slurm. Elements in the partition for parts are ours too."""
        with suppress(MalleableError):
            argv = [word for word in JOBS if word not in ("-p", f"{OURS},{OTHERS}")]
            run = self.bench.box.run
            texts = [run(words, env=EPOCH).stdout for words in (argv, NODES, RESERVATIONS)]
            look = parse_look(time.time(), *texts, Known(dict(self.nodes_out)))
            jobs = (replace(j, partition=OURS) if j.partition == PARTS else j for j in look.jobs)
            self.looks.append(replace(look, jobs=tuple(jobs)))
        return self.looks[-1]

    def broken(self) -> list[str]:
        """The faults of the whole course."""
        rules = [Rule(waits_for_us, WAIT_S, 4), Rule(_moved_nodes, 30, 3)]
        return [*self.faults, *faults_in(self.looks, rules), *self._of_ticks(), *self._steps_back()]

    def lacking(self) -> list[str]:
        """The reasons why the course has not come to rest: a job that does not train."""
        names = {e.name: e for e in self._elements(alive=False)}
        bad = []
        for job, made in self.living.items():
            if not any(at > self.calmed + 5 for at, _ in self._steps(job)):
                bad.append(f"job {job} ({made.request}) does not train")
            for index in range(made.count):
                name = f"{job}_{index}"
                state = names[name].state if name in names else "gone"
                if name not in self.cancelled and state not in ("RUNNING", "PENDING"):
                    bad.append(f"{name} is {state}")
        return bad

    def evidence(self) -> str:
        """What is lacking, what explain says of those jobs, and the last changes."""
        bad = self.lacking()
        about = [
            self.bench.malleable("explain", str(job)).stdout
            for job in self.living
            if any(line.startswith(f"job {job} ") for line in bad)
        ]
        rows = self._slurm_rows()
        return "\n".join([*bad, *about, rows, self.journal.read_text()[-6000:]])

    def _slurm_rows(self) -> str:
        """Every element as Slurm shows it."""
        words = ["squeue", "--noheader", "--array", "--states=all", "-o", "%i %T %r %p %P %l %N %k"]
        return self.bench.box.run(words, check=False).stdout

    def unfinished(self) -> list[str]:
        """The jobs that do not end although their work is done."""
        return [f"job {j} has not finished" for j in self.living if not self._is_over(j)]

    def finish(self) -> None:
        self.ended = time.time()
        for job in self.living:
            (self.work(job) / "enough").touch()

    def _is_over(self, job: int) -> bool:
        open_states = ("RUNNING", "PENDING", "COMPLETING", "SUSPENDED")
        left = [j for j in self.look().jobs if j.job_id == job and j.state in open_states]
        return not left and (self.work(job) / "finished").exists()

    def _of_ticks(self) -> list[str]:
        """Tracebacks, errors that are bugs, and cancels of jobs that go on."""
        errors = self._errors.read_text()
        faults = [errors[-3000:]] if "Traceback" in errors else []
        for line in self.journal.with_suffix(".ticks").read_text().splitlines():
            with suppress(json.JSONDecodeError):
                data = json.loads(line)
                if data.get("error", {}).get("exit_code") in BAD_EXITS:
                    faults.append(line[:500])
                for action in data.get("plan", {}).get("actions", ()):
                    if action["verb"] == "cancel" and not self._may_cancel(action, data["at"]):
                        faults.append(f"{data['at']}: {action['cause']}: {action['fragment']}")
        return faults

    def _may_cancel(self, action: Mapping[str, Any], at: str) -> bool:
        is_over = datetime.fromisoformat(at).timestamp() >= self.ended > 0
        return action["fragment"].partition("_")[0] in self.cancelled or is_over

    def _steps_back(self) -> list[str]:
        """Trainings that began again before what they had reached: the checkpoint was lost."""
        faults = []
        for job, made in self.jobs.items():
            most = 0
            for at, step in self._steps(job) if made.script is TORCHRUN else ():
                if step < most - 2:
                    faults.append(f"job {job} went from step {most} to {step} at {at:.0f}")
                most = max(most, step)
        return faults

    def _steps(self, job: int) -> list[tuple[float, int]]:
        path = self.work(job) / "steps.log"
        rows = (row.split() for row in (path.read_text().splitlines() if path.exists() else ()))
        return [(float(row[0]), int(row[1])) for row in rows if len(row) == 3]

    @property
    def living(self) -> dict[int, Made]:
        return {job: made for job, made in self.jobs.items() if str(job) not in self.cancelled}

    @property
    def has_parts(self) -> bool:
        return any("unit=" in made.request for made in self.jobs.values())

    def work(self, job: int) -> Path:
        return self.places[job]

    def _submit(self, made: Made) -> None:
        work = self.bench.box.work / f"train{time.monotonic_ns()}"
        work.mkdir()
        work.chmod(0o777)
        script = made.script.format(work=work)
        job = self.bench.submit(script, made.request, self.user, made.options)
        self.jobs[job], self.places[job] = made, work
        self._note(f"job {job}: {made.request} in {work.name}")

    def _elements(self, alive: bool = True) -> list[Job]:
        mine = (j for j in self.look().jobs if j.job_id in self.living and "_" in j.name)
        states = ("RUNNING", "PENDING", "SUSPENDED")
        return [j for j in mine if not alive or j.state in states]

    def _malleable(self, *words: str) -> None:
        said = self.bench.malleable(*words)
        self._note(f"malleable {' '.join(words)}: {said.returncode} {said.stdout} {said.stderr}")
        if "Traceback" in said.stderr:
            self.faults.append(said.stderr)

    def _do(self, *argv: str) -> bool:
        said = self.bench.box.run(argv, check=False)
        self._note(f"{' '.join(argv)}: {said.returncode} {said.stderr.strip()[:150]!r}")
        return said.returncode == 0

    def _note(self, text: str) -> None:
        at = f"{time.time() - self.began:6.1f} {time.strftime('%H:%M:%S')}"
        with self.journal.open("a") as file:
            file.write(f"{at} {re.sub(chr(10), ' / ', text.strip())}\n")


def _moved_nodes(look: Look) -> list[str]:
    fine = HEALTHY | {"maint"}  # in a reservation
    bad = (n for n in look.nodes if n.state.rstrip("*") not in fine)
    return [f"{n.name} is {n.state}" for n in bad if n.name not in look.known.drained]
