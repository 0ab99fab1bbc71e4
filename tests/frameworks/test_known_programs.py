"""Programs that nobody here wrote, in a job that grows, loses a fragment and is preempted.

`make test-programs` installs them. Each change becomes a line of build/programs.jsonl.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from promises.bench import TRAINER, WITH_TORCHRUN, Bench
from promises.test_training import is_over
from slurm_hooks.model import FragmentState, MalleableJob, Said
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

from .known_programs import HERE, PROGRAMS, Program

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.nightly,
    pytest.mark.slurm,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not find_spec("open_clip_train"), reason="make test-programs"),
]
ROOT = HERE.parent.parent
TABLE = ROOT / "build" / "programs.jsonl"
PACE_S = 0.3  # a step takes this long at least, until all changes have been made
STEPS_BETWEEN = 10
LIMIT_S = 400


@dataclass(frozen=True)
class Step:
    """A step that a process has made: when, and its number by Adam's own count."""

    t: float
    step: int
    rank: int
    world: int
    pid: int


@dataclass(frozen=True)
class Change:
    """What a change of size cost. The pause lasts from the last step before to the first after."""

    program: str
    event: str
    before: int
    after: int
    repeated: int
    pause_s: float


def rounds(steps: list[Step]) -> list[list[Step]]:
    """The steps of each round, in the order of time. Each round has processes of its own."""
    all_rounds: list[list[Step]] = []
    ranks: dict[int, int] = {}  # of the last round: process by rank
    for step in sorted(steps, key=lambda step: step.t):
        is_other = ranks.get(step.rank, step.pid) != step.pid
        if not all_rounds or step.world != all_rounds[-1][0].world or is_other:
            all_rounds.append([])
            ranks = {}
        ranks[step.rank] = step.pid
        all_rounds[-1].append(step)
    return all_rounds


def change(program: str, event: str, before: list[Step], after: list[Step]) -> Change:
    last, first = max(step.step for step in before), after[0]
    return Change(
        program,
        event,
        before[0].world,
        first.world,
        max(0, last - first.step + 1),
        round(first.t - before[-1].t, 1),
    )


class Training:
    """A program in a job, and what its processes note."""

    def __init__(self, bench: Bench, program: Program) -> None:
        self.bench, self.program = bench, program
        self.work = bench.box.work / program.name.split()[-1]
        self.notes, data, out = (self.work / name for name in ("notes", "data", "out"))
        for path in (self.notes, data, out):
            path.mkdir(parents=True)
        program.prepare(data)
        self.seen, self.changes = 0, list[Change]()
        self.pace(PACE_S)
        self.job = bench.submit(
            f"{WITH_TORCHRUN}\nexport STEPS_DIR={self.notes}\n"
            f"export PYTHONPATH={HERE}/observer:$PYTHONPATH\n"
            "export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1\n"
            f"cd {out}\n{program.line.format(data=data, out=out)}",
            "1-4",
            TRAINER,
            [f"--output={self.work}/log-%a"],
        )

    def pace(self, seconds: float) -> None:
        (self.notes / "pace").write_text(f"{seconds}")

    def rounds(self) -> list[list[Step]]:
        lines = (path.read_text().split("\n")[:-1] for path in self.notes.glob("steps-*"))
        return rounds([Step(**json.loads(line)) for of in lines for line in of])

    def until_round_of(self, world: int, after: int) -> int:
        """Run ticks until a round after this number trains with so many. Return its number."""

        def trains() -> bool:
            self.bench.tick()
            new = self.rounds()[after:]
            steps = new[-1] if new else []
            return bool(steps) and steps[0].world == world and len(steps) >= STEPS_BETWEEN * world

        wait_until(trains, LIMIT_S, self.explain, every_s=1)
        return len(self.rounds())

    def note(self, event: str, world: int) -> None:
        """Wait for a round after an event, and write what each round since the last cost.

        The event made the first of them. If more follow, the job has grown or shrunk by itself.
        """
        before = self.seen
        self.seen = self.until_round_of(world, before)
        since = self.rounds()[max(before - 1, 0) : self.seen]
        changes = []
        for old, new in zip(since, since[1:]):
            is_growth = bool(changes) and new[0].world > old[0].world
            changes.append(change(self.program.name, "growth" if is_growth else event, old, new))
        self.changes += changes
        with open(TABLE, "a") as table:
            table.writelines(json.dumps(asdict(each)) + "\n" for each in changes)

    def explain(self) -> str:
        logs = sorted(self.work.glob("log-*"))
        text = "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in logs)
        seen = [(of[0].world, of[0].step, of[-1].step) for of in self.rounds()]
        return f"{seen}\n{self.bench.malleable('explain', str(self.job)).stdout}\n{text}"

    def kill_a_fragment(self) -> None:
        """Send SIGKILL to all processes of a fragment that has trained, except Slurm's own.

        A job avoids the node of a fragment that died before it trained.
        """
        self.bench.tick_until(self.job, lambda job: bool(_trained(job)), LIMIT_S)
        fragment = _trained(self.bench.job(self.job))[0]
        mine = {f"SLURM_ARRAY_JOB_ID={self.job}", f"SLURM_ARRAY_TASK_ID={fragment}"}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                words = set((place / "environ").read_text(errors="replace").split("\0"))
                if mine <= words and "slurmstepd" not in (place / "comm").read_text():
                    os.kill(int(place.name), signal.SIGKILL)
            except OSError:  # it has ended, or is not ours
                continue


def _trained(job: MalleableJob) -> list[int]:
    running = [f for f in job.fragments if f.state is FragmentState.RUNNING]
    return [f.id.index for f in running if f.said is Said.TRAINED]


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    bench = Bench(sandbox, notice_s=20)
    bench.share_at_once()
    yield bench
    bench.cancel_all()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_grows_loses_a_fragment_is_preempted_and_finishes(
    program: Program, bench: Bench
) -> None:
    box = bench.box
    box.run(["scontrol", "update", "nodename=n[3-4]", "state=drain", "reason=test"])
    try:
        training = Training(bench, program)
        training.note("start", 2)
    finally:
        box.run(["scontrol", "update", "nodename=n[3-4]", "state=resume"])
    training.note("growth", 4)
    training.kill_a_fragment()
    training.note("SIGKILL", 4)  # with a round of 3 before the fragment comes back
    other = ["sbatch", "--parsable", "-pmain", "-N2", "--exclusive", "--wrap=sleep 1000"]
    urgent = box.run(other).stdout.strip()
    training.note("preemption", 2)
    box.run(["scancel", urgent])
    training.note("growth", 4)
    training.pace(0)
    bench.tick_until(training.job, is_over, LIMIT_S)
    assert "training finished" in bench.malleable("explain", str(training.job)).stdout
    fragments = bench.job(training.job).fragments
    assert not [f for f in fragments if f.state is FragmentState.FAILED], training.explain()
    grown = [change for change in training.changes if change.event == "growth"]
    assert all(change.repeated <= program.repeats for change in grown), training.changes
