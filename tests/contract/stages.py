"""The same acts on the fake Slurm and on a real Slurm, which must give equal answers."""

from __future__ import annotations

import pwd
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional, Protocol

from fake_parts import Element, Script
from fake_slurm import FakeSlurm
from programs import write_program
from slurm_hooks.errors import CommandRefused
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.slurm.live import Live
from slurm_hooks.slurm.text import Command
from waiting import PATIENCE_S

NODES = 3
NOBODY = pwd.getpwnam("nobody").pw_uid  # scancel knows no user of that name (25.11.8)
FIELDS = (
    *("JobArrayID", "State", "PriorityLong", "EligibleTime", "StartTime", "EndTime", "TimeLimit"),
    *("restartcnt", "exit_code", "Reason", "NodeList", "admin_comment", "comment", "Partition"),
)
Row = dict[str, str]
QUESTION = "-O" + ",".join(f"{name}:|" for name in FIELDS)


def read(text: str, job: int) -> dict[int, Row]:
    """The rows of a job by the index of the element."""
    rows = (dict(zip(FIELDS, line.split("|"))) for line in text.splitlines())
    named = ((re.fullmatch(rf"{job}_(\d+)", row["JobArrayID"]), row) for row in rows)
    return {int(match.group(1)): row for match, row in named if match}


class Stage(Protocol):
    """A cluster of three nodes on which people act."""

    def submit(self, count: int, code: Optional[int] = None, partition: str = "malleable") -> int:
        """Submit a held array whose script sleeps, or ends with `code` after a second."""
        ...

    def does(self, line: str, user: str = "root") -> bool:
        """Type a command. Return True if it was not refused."""
        ...

    def rows(self, job: int, partition: str = "malleable,main") -> dict[int, Row]:
        """Rows of squeue for its elements in these partitions."""
        ...

    def preempt(self) -> None:
        """A job of a higher tier needs all nodes for a moment."""
        ...

    def idle(self) -> int:
        """The number of idle nodes."""
        ...

    def now(self) -> int:
        """The clock of slurmctld."""
        ...

    def wait(self) -> None:
        """Let a moment pass."""
        ...

    def tidy(self) -> None: ...


@dataclass
class Fake:
    """The fake Slurm."""

    slurm: FakeSlurm = field(
        default_factory=lambda: FakeSlurm({f"n{i}": "" for i in range(1, NODES + 1)})
    )
    codes: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.slurm.outcome = self._outcome

    def _outcome(self, element: Element, ran_s: int) -> Optional[int]:
        return self.codes.get(element.job) if ran_s > 1 else None

    def submit(self, count: int, code: Optional[int] = None, partition: str = "malleable") -> int:
        job = len(self.slurm.jobs) + 1
        script = Script(joins=False)
        self.slurm.submit(job, count, "(null)", script=script, partition=partition)
        if code is not None:
            self.codes[job] = code
        return job

    def does(self, line: str, user: str = "root") -> bool:
        return not self.slurm.does(line, user)

    def rows(self, job: int, partition: str = "malleable,main") -> dict[int, Row]:
        argv = ("squeue", "--array", f"--partition={partition}", QUESTION)
        return read(self.slurm.ask(Command(argv)), job)

    def preempt(self) -> None:
        for element in self.slurm.ours_on(frozenset(self.slurm.nodes)):
            self.slurm.preempt(element.name)

    def idle(self) -> int:
        return sum(self.slurm.is_free(name) for name in self.slurm.nodes)

    def now(self) -> int:
        return self.slurm.now

    def wait(self) -> None:
        self.slurm.advance(1)

    def tidy(self) -> None:
        pass


@dataclass
class Real:
    """A sandbox without anything of this project in it."""

    box: Sandbox

    @property
    def live(self) -> Live:
        return Live(20.0, environment=dict(self.box.environment))

    def submit(self, count: int, code: Optional[int] = None, partition: str = "malleable") -> int:
        script = self.box.work / f"job{time.monotonic_ns()}.sh"
        end = "exec sleep 600" if code is None else f"sleep 1; exit {code}"
        write_program(script, f"#!/bin/bash\n{end}\n")
        argv = ["sbatch", "-p", partition, "--requeue", "--hold", f"--array=0-{count - 1}"]
        argv += ["--time=10", "-N1", str(script)]
        said = self.box.run(argv, user="nobody").stdout
        return int(said.split()[-1])

    def does(self, line: str, user: str = "root") -> bool:
        as_user = None if user == "root" else user
        return self.box.run(line.split(" "), user=as_user, check=False).returncode == 0

    def rows(self, job: int, partition: str = "malleable,main") -> dict[int, Row]:
        argv = (
            "squeue",
            "--noheader",
            "--all",
            "--array",
            "--states=all",
            f"--jobs={job}",
            f"--partition={partition}",
            QUESTION,
        )
        try:
            return read(self.live.ask(Command(argv)), job)
        except CommandRefused:  # the job is unknown by now
            return {}

    def preempt(self) -> None:
        argv = ["sbatch", "-p", "main", f"-N{NODES}", "--time=1", "--wrap", "sleep 1"]
        self.box.run([*argv, f"--output={Path('/dev/null')}"])

    def idle(self) -> int:
        said = self.box.run(["sinfo", "-h", "-N", "-p", "main", "-o", "%t"]).stdout
        return said.split().count("idle")

    def now(self) -> int:
        return int(time.time())

    def wait(self) -> None:
        time.sleep(0.2)

    def tidy(self) -> None:
        # Not by user: for 26.05 nobody is no user.
        for partition in ("malleable", "main"):
            self.box.run(["scancel", f"--partition={partition}"], check=False)
        until(self, lambda: self.idle() == NODES)


def until(stage: Stage, holds: Callable[[], bool], limit_s: float = PATIENCE_S) -> None:
    """Wait until something holds. Raises AssertionError if it does not."""
    deadline = stage.now() + limit_s
    while not holds():
        assert stage.now() < deadline
        stage.wait()
