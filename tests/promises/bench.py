"""A malleable job on a sandbox, and ticks run against it, for the tests of the promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import warm_commands
from kept_sandbox import job_directory
from programs import write_program
from slurm_hooks.model import FragmentState, MalleableJob, NodeState, Snapshot
from slurm_hooks.report.text import find_job
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.settings.file import load
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.slurm.live import Asked, Live
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick.reconcile import tick
from slurm_hooks.tick.report import TickReport
from waiting import PATIENCE_S, wait_until

SHORT = """
# short, for tests
[lease]
length_s = 120
shortest_hole_s = 60
margin_s = 35
notice_s = {notice_s}
start_timeout_s = 15

[plan]
snooze_s = 0
"""

# For jobs that train: this Python's torchrun, as a user who can read it.
WITH_TORCHRUN = f"export PATH={Path(sys.executable).parent}:$PATH"
TRAINER = "root" if os.geteuid() == 0 else "nobody"
_TESTS = Path(__file__).resolve().parents[1]
_USUAL = _TESTS / "elastic" / "train_usual.py"


def hastened(*times: str) -> str:
    """A torchrun whose agent waits for so many seconds: `"agent.stall.LEAST_S=8"`."""
    return " ".join(["python", str(_TESTS / "hastened.py"), *times])


def usual_training(work: Path, steps: int, keeps: str) -> str:
    """A script with the standard training, which has its notes and its result in this directory."""
    work.mkdir()
    return f"{WITH_TORCHRUN} OMP_NUM_THREADS=1\nexec torchrun {_USUAL} {work} {steps} {keeps}"


class Killed(BaseException):
    """A stand-in for SIGKILL: the package must not catch it."""


@dataclass
class CutPort:
    """Slurm reached through a reconciler that dies after `writes` single changes."""

    live: Live
    writes: int
    asked: list[Asked] = field(default_factory=list)

    def ask(self, command: Command) -> str:
        if command.argv[0] == "squeue" or command.stdin.startswith("show "):
            return self.live.ask(command)
        lines = command.stdin.splitlines(keepends=True)
        cost = len(lines) or 1
        if cost > self.writes:
            if lines and self.writes:
                self.live.ask(replace(command, stdin="".join(lines[: self.writes])))
            raise Killed
        self.writes -= cost
        return self.live.ask(command)


@dataclass
class Bench:
    """Ticks and questions against a sandbox."""

    box: Sandbox
    notice_s: int = 3

    def __post_init__(self) -> None:
        text = self.box.settings.read_text().partition("\n# short")[0]
        if "every_s" not in text:
            text = text.replace("[tick]", "[tick]\nevery_s = 2")
        self.box.settings.write_text(text + SHORT.format(notice_s=self.notice_s))

    def share_at_once(self) -> None:
        """Turn learning off. With learning, jobs that want more than there is begin on 1 node.

        For tests of jobs that have their shares. All other tests run the defaults.
        """
        text = self.box.settings.read_text()
        self.box.settings.write_text(f"{text}\n[learn]\nenabled = false\n")

    def patient(self) -> Bench:
        """Let fragments without an agent stay.

        Otherwise a job keeps a single fragment once its first has run for `failures.join_s` without
        an agent. A busy host may need longer than that until all of them run.
        """
        text = self.box.settings.read_text()
        if "join_s" not in text:
            self.box.settings.write_text(f"{text}\n[failures]\njoin_s = 3600\n")
        return self

    @property
    def settings(self) -> Settings:
        return load(self.box.settings)

    @property
    def live(self) -> Live:
        return Live(environment={**os.environ, **self.box.environment})

    def submit(
        self,
        script: str,
        request: str = "1-3",
        user: str = "nobody",
        options: Sequence[str] = (),
    ) -> int:
        path = self.box.work / f"job{time.monotonic_ns()}.sh"
        write_program(path, f"#!/bin/bash\n{script}\n")
        as_user = user if os.geteuid() == 0 else None
        argv = ["sbatch", f"--malleable={request}", *options, str(path)]
        said = self.box.run(argv, user=as_user).stdout
        match = re.search(r"batch job (\d+)", said)
        assert match, said
        return int(match.group(1))

    def tick(self) -> TickReport:
        return tick(self.live, self.settings)

    def malleable(self, *words: str) -> subprocess.CompletedProcess[str]:
        return warm_commands.malleable(*words, env={**os.environ, **self.box.environment})

    def directory(self, job_id: int, user_id: int = os.geteuid()) -> Path:
        """The directory that the job's fragments share."""
        return job_directory(self.box, job_id, user_id)

    def observe(self) -> Snapshot:
        site = self.settings.site
        return observe(self.live, site.partitions, site.part_nodes)

    def job(self, job_id: int) -> MalleableJob:
        job = find_job(self.observe(), job_id)
        assert job is not None
        return job

    def states(self, job_id: int) -> list[FragmentState]:
        return [f.state for f in self.job(job_id).fragments]

    def until(
        self, job_id: int, is_so: Callable[[MalleableJob], bool], limit_s: float = PATIENCE_S
    ) -> None:
        """Wait without ticks."""
        self._wait(job_id, is_so, limit_s, lambda: None)

    def tick_until(
        self, job_id: int, is_so: Callable[[MalleableJob], bool], limit_s: float = PATIENCE_S
    ) -> None:
        """Tick once a second until the condition holds."""
        self._wait(job_id, is_so, limit_s, lambda: self.tick() and None)

    def _wait(
        self,
        job_id: int,
        is_so: Callable[[MalleableJob], bool],
        limit_s: float,
        meanwhile: Callable[[], None],
    ) -> None:
        def is_met() -> bool:
            if is_so(self.job(job_id)):
                return True
            meanwhile()
            return False

        def explain() -> str:
            """Show where the job's fragments are, and why the job has its size."""
            text = self.malleable("explain", str(job_id)).stdout
            return f"{_shown(self.job(job_id))}\n{text}"

        wait_until(is_met, limit_s, explain, every_s=0.5)

    def cancel_all(self) -> None:
        """Leave the cluster empty for the next test."""
        for job in self.observe().jobs:
            self.box.run(["scancel", str(job.job_id)], check=False)
        # One command for all states: a waiting job may start between two.
        self.box.run(["scancel", "--partition=main"], check=False)
        wait_until(self._is_empty, every_s=0.3)

    def _is_empty(self) -> bool:
        """Tell whether every node is free. A node may still be completing after its job."""
        if self.box.run(["squeue", "-h"]).stdout.strip():
            return False
        return all(node.state is NodeState.FREE for node in self.observe().nodes)


def _shown(job: MalleableJob) -> list[tuple[str, str, str, list[str]]]:
    return [(str(f.id), f.state.value, f.reason, sorted(f.nodes)) for f in job.fragments]


def has(count: int, state: FragmentState = FragmentState.RUNNING) -> Callable[[MalleableJob], bool]:
    """True for a job with so many fragments in a state."""
    return lambda job: sum(f.state is state for f in job.fragments) == count


def occupied(job: MalleableJob) -> set[str]:
    """The nodes of all running fragments, also of fragments that leave."""
    return {n for f in job.fragments if f.state is FragmentState.RUNNING for n in f.nodes}
