"""The recipes of examples/ on a sandbox: started as a user would, and their workers disturbed."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from promises.bench import TRAINER, Bench
from slurm_hooks.model import FragmentState
from slurm_hooks.report.text import find_job
from waiting import wait_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
AT_WORK = {FragmentState.RUNNING, FragmentState.PENDING}


@dataclass(frozen=True)
class Recipe:
    """A copy of an example in the sandbox's working directory."""

    bench: Bench
    place: Path

    @staticmethod
    def source(name: str) -> Path:
        return EXAMPLES / name

    @classmethod
    def copied(cls, bench: Bench, name: str) -> Recipe:
        place = bench.box.work / f"{name}-{time.monotonic_ns()}"
        shutil.copytree(cls.source(name), place)
        return cls(bench, place)

    def submit(self, script: str, *words: str, request: str = "") -> int:
        """Submit it as in its README, with this Python. Return the job's id."""
        inner = f"export PATH={Path(sys.executable).parent}:$PATH OMP_NUM_THREADS=1"
        command = f"cd {self.place}\n{inner}\n. {self.place / script} {' '.join(words)}"
        return self.bench.submit(command, request or _request_of(self.place / script), TRAINER)

    def processes(self, program: str) -> list[int]:
        """Processes that run a program from the recipe's directory, the oldest first,
        without agents.
        """
        numbers = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _runs(entry, program, self.place):
                numbers.append(int(entry.name))
        return sorted(numbers, key=_start_of)

    def disturb(self, job: int, program: str) -> None:
        """Let the job grow to four, preempt two, let it grow again, kill a worker, and wait
        for the end.
        """
        self.tick_until(lambda: self.are_at_work(program, 4), job)
        with self.preempted():
            self.tick_until(lambda: self.are_at_work(program, 2), job)
        self.tick_until(lambda: self.are_at_work(program, 4), job)
        self.kill_one(program)
        self.tick_to_end(job)

    def are_at_work(self, program: str, count: int) -> bool:
        """Tell whether so many workers are alive, and as many tasks have been begun and saved."""
        saved = list(self.place.glob("*/*.checkpoint"))
        return len(saved) >= count and len(self.processes(program)) == count

    def kill_one(self, program: str) -> None:
        """Kill the oldest worker, which is at a task."""
        os.kill(self.processes(program)[0], signal.SIGKILL)

    @contextmanager
    def preempted(self, nodes: int = 2) -> Iterator[None]:
        """Let an ordinary job hold nodes of a pool that has all of them."""
        argv = ["sbatch", "-p", "main", f"-N{nodes}", "--time=10", "--parsable"]
        number = self.bench.box.run([*argv, "--wrap", "sleep 600"]).stdout.strip()
        state = ["squeue", "-h", "-j", number, "-o", "%T"]
        wait_until(lambda: "RUNNING" in self.bench.box.run(state).stdout, every_s=0.3)
        yield
        self.bench.box.run(["scancel", number])

    def tick_to_end(self, job: int) -> None:
        """Tick until no worker runs and no worker is about to: the planner has closed the array."""
        self.tick_until(lambda: self._is_over(job), job)

    def tick_until(self, is_so: Callable[[], bool], job: int) -> None:
        def is_met() -> bool:
            if is_so():
                return True
            self.bench.tick()
            return False

        wait_until(is_met, 300, explain=lambda: self.logs(job), every_s=0.5)

    def logs(self, job: int) -> str:
        """The ends of its fragments' logs, for a failure's report."""
        paths = sorted(self.bench.box.work.glob(f"slurm-{job}_*.out"))
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in paths)

    def _is_over(self, job: int) -> bool:
        status = find_job(self.bench.observe(), job)
        states = {f.state for f in status.fragments} if status else set()
        return not states & (AT_WORK | {FragmentState.HELD})


def _request_of(script: Path) -> str:
    lines = script.read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("#SBATCH --malleable="))
    return line.partition("=")[2]


def _start_of(process: int) -> int:
    """Clock ticks from the host's start to its own."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])


def _runs(entry: Path, program: str, place: Path) -> bool:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
        where = (entry / "cwd").resolve()
    except OSError:
        return False
    return where == place and words[1:2] == [program.encode()]
