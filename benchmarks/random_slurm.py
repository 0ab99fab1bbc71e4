"""A random course of changes on a real Slurm: what Slurm and the tick do to a malleable job.

The course is others' business with the nodes: ordinary jobs of a higher partition come and go,
reservations are made and deleted, nodes are set down and resumed (the benchmark is the admin),
an operator holds the job and releases it, or requeues one of its fragments. What becomes of the
malleable job is decided by Slurm's own preemption and by ticks at their own pace.
"""

from __future__ import annotations

import os
import random
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from live_slurm import configure, ticks
from random_course import (
    LARGEST,
    MANY_STEPS,
    SMALLEST,
    STEPS_TO_A_FILE,
    TRAININGS,
    LostError,
    Outcome,
    StepLog,
    again,
    await_until,
    tail,
    worst_finish,
)

from slurm_hooks.errors import MalleableError, RetryLater
from slurm_hooks.pause import hold, release
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec
from slurm_hooks.settings_file import load
from slurm_hooks.slurm.live import Live

STEPS_ON = 20  # so many more: the training goes on
REST_S = (0.2, 8.0)  # ticks come every five seconds or less often
AHEAD_S = (15, 45)  # from the making of a reservation to its start
REQUEST = {
    "torchrun": f"{SMALLEST}-{LARGEST}",
    "torchft": f"{SMALLEST}-{LARGEST},engine=torchft",
}
SCRIPTS = {"torchrun": "train_samples.py", "torchft": "train_torchft.py"}


class Kind(Enum):
    """What can happen."""

    JOB = "ordinary job preempts"
    JOB_ENDS = "ordinary job ends"
    RESERVATION = "reservation made"
    RESERVATION_ENDS = "reservation deleted"
    DOWN = "node set down"
    RESUME = "node resumed"
    HOLD = "operator holds"
    RELEASE = "operator releases"
    REQUEUE = "fragment requeued"
    SEVERAL = "several at once"


ENDED_BY = {
    Kind.JOB: Kind.JOB_ENDS,
    Kind.RESERVATION: Kind.RESERVATION_ENDS,
    Kind.DOWN: Kind.RESUME,
}


@dataclass(frozen=True)
class Obstacle:
    """Nodes that somebody else has, and what Slurm calls the reason."""

    kind: Kind
    name: str
    nodes: tuple[str, ...]


def possible(free: int, obstacles: list[Obstacle], is_held: bool) -> list[Kind]:
    """What may happen with so many nodes left to the job: each as often as it is likely. The
    fewer are left, the likelier it is that one comes back."""
    kinds = [ENDED_BY[obstacle.kind] for obstacle in obstacles] * 2
    kinds += [Kind.RELEASE] * 4 if is_held else [Kind.HOLD]
    kinds += [Kind.REQUEUE, Kind.SEVERAL]
    return kinds + [Kind.JOB, Kind.JOB, Kind.RESERVATION, Kind.DOWN] * min(free, 2)


class SlurmCourse:
    """See Course: one malleable job on a sandbox, and what happens around it."""

    def __init__(
        self, box: Sandbox, batch: Path, request: str, seed: int, patience_s: float
    ) -> None:
        self._box, self._patience_s = box, patience_s
        self._random = random.Random(seed)
        self._log = StepLog(box.work)
        self._tellers = LARGEST if "torchft" in request else 1
        self._obstacles: list[Obstacle] = []
        self._is_held = False
        self._count = 0
        self.told: Counter[str] = Counter()
        words = ["sbatch", "--parsable", f"--malleable={request}", "--output=fragment-%a.log"]
        self._job = int(box.run([*words, str(batch)]).stdout)

    def begin(self) -> None:
        """See Course."""
        await_until(
            lambda: self._size() == LARGEST, self._patience_s, f"{LARGEST} that train together"
        )

    def change(self) -> str:
        """See Course."""
        kind = self._choose()
        if kind is Kind.SEVERAL:
            self.told[kind.value] += 1
            for _ in range(self._random.randint(2, 3)):
                while (each := self._choose()) is Kind.SEVERAL:
                    pass
                self._do(each)
        else:
            self._do(kind)
        return kind.value

    def rest(self, must_step: bool) -> None:
        """See Course. Nobody waits for steps that a hold or the lack of nodes keeps away."""
        time.sleep(self._random.uniform(*REST_S))
        if must_step and len(self._free()) >= SMALLEST and not self._is_held:
            self._await_steps()

    def step(self) -> int:
        """See Course."""
        return self._log.read().newest()

    def end(self) -> None:
        """All obstacles go first."""
        while self._obstacles:
            self._do(ENDED_BY[self._obstacles[0].kind])
        if self._is_held:
            self._do(Kind.RELEASE)
        self._await_steps()
        (self._box.work / "enough").touch()
        await_until(lambda: not self._rows("%i"), self._patience_s, "the end of the job")

    def outcome(self) -> Outcome:
        """See Course."""
        return worst_finish(self._box.work)

    def steps_again(self) -> int:
        """See Course."""
        return again(self._log.read().steps, self._tellers)

    def evidence(self) -> str:
        """See Course."""
        logs = [*sorted(self._box.work.glob("fragment-*.log")), self._box.work / "ticks.log"]
        around = [f"obstacles: {self._obstacles}, held: {self._is_held}"]
        queue = self._box.run(["squeue", "--array", "--states=all"], check=False).stdout
        return "\n".join([*map(tail, logs), *around, queue])

    def _choose(self) -> Kind:
        kinds = possible(len(self._free()), self._obstacles, self._is_held)
        return self._random.choice(kinds)

    def _do(self, kind: Kind) -> None:
        self.told[kind.value] += 1
        if kind in ENDED_BY:
            self._obstruct(kind)
        elif kind in ENDED_BY.values():
            self._give_back(kind)
        elif kind is Kind.REQUEUE:
            self._requeue()
        else:
            self._pause(is_held=kind is Kind.HOLD)

    def _obstruct(self, kind: Kind) -> None:
        """Take nodes that the job may have now."""
        free = self._free()
        count = self._random.choice([1, 1, 2, len(free)]) if kind is Kind.JOB else 1
        nodes = tuple(sorted(self._random.sample(free, min(count, len(free)))))
        self._count += 1
        if kind is Kind.JOB:
            words = ["sbatch", "--parsable", "-p", "main", f"--nodes={len(nodes)}", "--exclusive"]
            words += [f"--nodelist={','.join(nodes)}", "--time=60", "--output=/dev/null"]
            name = self._box.run([*words, "--wrap=exec sleep 3600"]).stdout.strip()
        elif kind is Kind.RESERVATION:
            name = f"r{self._count}"
            words = ["scontrol", "create", "reservation", f"reservationname={name}", "users=root"]
            words += [f"starttime=now+{self._random.randint(*AHEAD_S)}", "duration=60"]
            self._box.run([*words, f"nodes={','.join(nodes)}", "flags=ignore_jobs"])
        else:
            (name,) = nodes
            words = ["scontrol", "update", f"nodename={name}", "state=down", "reason=benchmark"]
            self._box.run(words)
        self._obstacles.append(Obstacle(kind, name, nodes))

    def _give_back(self, kind: Kind) -> None:
        """One of those that are in the way goes."""
        mine = [o for o in self._obstacles if ENDED_BY[o.kind] is kind]
        gone = self._random.choice(mine)
        words = {
            Kind.JOB: ["scancel", gone.name],
            Kind.RESERVATION: ["scontrol", "delete", f"reservationname={gone.name}"],
            Kind.DOWN: ["scontrol", "update", f"nodename={gone.name}", "state=resume"],
        }[gone.kind]
        self._box.run(words, check=gone.kind is not Kind.DOWN)  # it may have come back by itself
        self._obstacles.remove(gone)

    def _requeue(self) -> None:
        """By an operator. One that ends at this moment may refuse."""
        if running := self._rows("%i", "-t", "R"):
            self._box.run(["scontrol", "requeue", self._random.choice(running)], check=False)

    def _pause(self, is_held: bool) -> None:
        """As `malleable hold` and `malleable release` do it."""
        port = Live(environment={**os.environ, **self._box.environment})
        act = hold if is_held else release
        until = time.monotonic() + self._patience_s
        while self._is_held is not is_held:
            try:
                act(port, load(self._box.settings), self._job)
                self._is_held = is_held
            except RetryLater as error:  # as an operator would; the host has two cores
                if time.monotonic() > until:
                    raise LostError(f"{act.__name__}: {error}") from error
            except MalleableError as error:
                raise LostError(f"{act.__name__}: {error}") from error

    def _free(self) -> list[str]:
        taken = {node for obstacle in self._obstacles for node in obstacle.nodes}
        return [node for node in self._box.nodes if node not in taken]

    def _rows(self, fields: str, *more: str) -> list[str]:
        words = ["squeue", "-h", "--array", f"--jobs={self._job}", "-o", fields, *more]
        return self._box.run(words, check=False).stdout.split()

    def _size(self) -> int:
        """How many did the newest step."""
        steps = self._log.read().steps
        return steps[-1].world if steps else 0

    def _await_steps(self) -> None:
        wanted = self._log.read().newest() + STEPS_ON
        what = f"step {wanted} with {len(self._free())} nodes free"
        await_until(lambda: self._log.read().newest() >= wanted, self._patience_s, what)


def batch_text(engine: str, is_watched: bool, work: Path) -> str:
    """The script of the malleable job."""
    words = ["torchrun", str(TRAININGS / SCRIPTS[engine]), str(work)]
    watch = ["export TRAIN_WATCH=1"] if is_watched else []
    return "\n".join(
        [
            "#!/bin/bash",
            f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH",
            "export OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore RUST_LOG=warn",
            *watch,
            f"exec {shlex.join([*words, str(MANY_STEPS), str(STEPS_TO_A_FILE)])}",
            "",
        ]
    )


@contextmanager
def course_on_slurm(
    engine: str, is_watched: bool, seed: int, patience_s: float
) -> Iterator[tuple[SlurmCourse, Path]]:
    """A course on a Slurm of its own, and where its files are until it ends."""
    with Sandbox.up(project_spec(nodes=LARGEST, kill_wait_s=5)) as box:
        configure(box)
        batch = box.work / "train.sh"
        batch.write_text(batch_text(engine, is_watched, box.work))
        with ticks(box):
            yield SlurmCourse(box, batch, REQUEST[engine], seed, patience_s), box.work
