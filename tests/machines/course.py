"""The site of the machines, and a training of a user there."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from machines.guest import Guest
from machines.pages import Administrator
from machines.root import NODES, SPARE, TREE
from slurm_hooks.elastic.rendezvous.codec import decode
from waiting import wait_until

LONG_S = 600.0  # for what has no bound
LOOK_S = 0.5
USERS = {"ann": 1001, "bob": 1002}
DIGITS = TREE / "examples" / "digits"
Round = Mapping[str, Any]
# The example, in a process that takes all memory once a file tells its node to.
HUNGRY = """\
import os, runpy, threading, time

def eat():
    order, held = f"eat.{os.uname().nodename}", []
    while not os.path.exists(order):
        time.sleep(1)
    os.remove(order)
    while True:
        held.append(bytearray(b"x" * (16 << 20)))

threading.Thread(target=eat, daemon=True).start()
runpy.run_path("digits.py", run_name="__main__")
"""


@dataclass
class Site:
    """Machines with our packages. `rows` become the table at the end."""

    machines: Mapping[str, Guest]
    rows: list[tuple[str, str, float, float]] = field(default_factory=list)
    _lasting: Training | None = None

    @property
    def ctl(self) -> Guest:
        return self.machines["ctl"]

    @property
    def nodes(self) -> list[Guest]:
        return [self.machines[name] for name in NODES]

    def note(self, fault: str, event: str, took_s: float, bound_s: float = 0.0) -> None:
        """Add a row to the table. With a bound, which is a promise, check it."""
        self.rows.append((fault, event, took_s, bound_s))
        assert not bound_s or took_s <= bound_s, f"{fault}: {event} took {took_s:.1f} s"

    def install(self, debs: list[Path]) -> None:
        """Do what the pages say, with a row for each command."""
        self.await_nodes("idle")
        for guest in self.machines.values():
            if guest.name != SPARE:
                guest.receive(debs)
        began = time.monotonic()
        for line in Administrator(self.machines).install():
            self.note("none", line[:50], time.monotonic() - began)
            began = time.monotonic()

    def squeue(self, form: str, *words: str) -> list[list[str]]:
        """The rows of squeue, by their words."""
        said = self.ctl.run(f"squeue -h -a -r -o '{form}' {' '.join(words)}")
        return [line.split() for line in said.splitlines()]

    def states(self) -> dict[str, str]:
        """The state of each node, such as `idle*`."""
        said = self.ctl.run("sinfo -h -N -p main -o '%N %t'")
        return dict(line.split() for line in said.splitlines())

    def await_nodes(self, states: str = "idle mix alloc") -> None:
        """Wait until every node answers, and is in one of these states."""
        good = set(states.split())
        wait_until(lambda: set(self.states().values()) <= good, LONG_S, self.states, every_s=2)

    def lasting(self) -> Training:
        """A training on all nodes. Tests share it as long as it lives."""
        if self._lasting is None or not self._lasting.places():
            self.end_lasting()
            self.await_nodes("idle")
            self._lasting = Training(self, f"lasting{time.time():.0f}")
            self._lasting.submit()
        self._lasting.await_size(len(NODES))
        return self._lasting

    def end_lasting(self) -> None:
        if self._lasting:
            self.ctl.run(f"scancel {self._lasting.job}")
            self._lasting = None

    @contextmanager
    def training(
        self, name: str, script: str = "train.py", options: str = "", base: str = "/shared"
    ) -> Iterator[Training]:
        """A training of ann that has begun on all nodes. It ends with this context."""
        self.end_lasting()
        self.await_nodes("idle")
        training = Training(self, name, script=script, base=base)
        training.submit(options=options)
        try:
            training.await_size(len(NODES))
            yield training
        finally:
            self.ctl.run(f"scancel {training.job}")


@dataclass
class Training:
    """The digits example in its own directory. A step is a second of work, shared by all."""

    site: Site
    name: str
    user: str = "ann"
    job: str = ""
    script: str = "train.py"
    base: str = "/shared"

    @property
    def home(self) -> str:
        return f"{self.base}/home/{self.user}/{self.name}"

    @property
    def shared(self) -> str:
        """The directory of its agents."""
        return f"{self.home}/.malleable-{USERS[self.user]}/machines/{self.job}"

    def submit(self, steps: int = 100_000, is_plain: bool = False, options: str = "") -> None:
        ctl = self.site.ctl
        ctl.run(f"mkdir -p {self.home}", self.user)
        files = {name: (DIGITS / name).read_text() for name in {"train.py", self.script}}
        files["train.sh"] = (DIGITS / "train.sh").read_text().replace("train.py", self.script)
        if self.script == "train.py" and not is_plain:
            files = {**files, "digits.py": files["train.py"], "train.py": HUNGRY}
        for name, text in files.items():
            ctl.write(f"{self.home}/{name}", text, self.user)
        line = f"sbatch --malleable=1-3 {options} train.sh --steps {steps} --pace 1"
        said = ctl.run(f". {sys.prefix}/bin/activate && cd {self.home} && {line}", self.user)
        match = re.search(r"Submitted batch job (\d+)", said)
        assert match, said
        self.job = match[1]

    def rounds(self) -> list[Round]:
        said = self.site.ctl.ssh(f"cat {self.shared}/rounds.jsonl")
        return [json.loads(line) for line in said.stdout.splitlines()]

    def ranks(self) -> list[int]:
        """The fragments of the present round, by rank."""
        newest = f"cd {self.shared} && head -n 1 $(ls -v state.* | tail -n 1)"
        now = decode(self.site.ctl.run(newest)).round
        assert now
        return list(now.fragments)

    def last_rank(self) -> tuple[int, Guest]:
        """The fragment of the last rank, and its node."""
        fragment = self.ranks()[-1]
        return fragment, self.site.machines[self.places()[fragment]]

    def places(self) -> dict[int, str]:
        """The node of each fragment that Slurm runs."""
        rows = self.site.squeue("%K %N", f"-j {self.job}", "-t R")
        return {int(row[0]): row[1] for row in rows if len(row) == 2}

    def restarts(self) -> dict[int, int]:
        """How often Slurm has requeued each fragment."""
        said = self.site.ctl.run(f"scontrol -o show job {self.job}")
        pairs = re.findall(r"ArrayTaskId=(\d+) .*? Restarts=(\d+) ", said)
        return {int(one): int(count) for one, count in pairs}

    def await_round(self, fits: Callable[[Round], bool], limit_s: float = LONG_S) -> Round:
        """Wait until the last round fits, and return it."""

        def look() -> Round | None:
            last = self.rounds()[-1:]
            return last[0] if last and fits(last[0]) else None

        return cast(Round, wait_until(look, limit_s, self.evidence, every_s=LOOK_S))

    def await_size(self, size: int, limit_s: float = LONG_S) -> Round:
        return self.await_round(lambda one: one["size"] == size, limit_s)

    def await_steps(self, limit_s: float = LONG_S) -> float:
        """Wait for a new checkpoint, and return the seconds until it came."""
        began, before = time.monotonic(), self.saved()
        wait_until(lambda: self.saved() != before, limit_s, self.evidence, every_s=LOOK_S)
        return time.monotonic() - began

    def saved(self) -> str:
        """The time at which the last checkpoint was written."""
        return self.site.ctl.ssh(f"stat -c %y {self.home}/checkpoint*.pt").stdout

    def logs(self) -> str:
        """All lines of its fragments."""
        return self.site.ctl.run(f"cat {self.home}/digits-{self.job}*.log")

    def lock(self, node: str) -> None:
        """Let a process there hold the agents' lock, which a server keeps after the node's loss."""
        guest, file = self.site.machines[node], f"{self.shared}/lock"
        guest.run(f"setsid flock {file} sleep 900 >/dev/null 2>&1 &", self.user)
        wait_until(lambda: not guest.tries(f"flock -n {file} true", self.user), every_s=0.5)

    def lost_lines(self) -> list[str]:
        """What the fragments' logs should have, and lack: each round in a line that is whole."""
        logs = self.logs()
        lines = (f"round {one['round']} formed: {one['size']} fragment" for one in self.rounds())
        return [line for line in lines if line not in logs] + ["NUL"] * logs.count("\0")

    def evidence(self) -> str:
        """What a reader of a failure wants to know."""
        logs = f"{self.home}/digits-{self.job}*.log"
        commands = (
            f"tail -n 5 {self.shared}/rounds.jsonl",
            f"tail -n 30 {logs}",
            f"squeue -a -r; sinfo -N; malleable explain {self.job}",
            "tail -n 30 /var/log/slurm/slurmctld.log; journalctl -t slurm-malleable | tail -n 20",
        )
        said = (self.site.ctl.ssh(one).stdout for one in commands)
        return "\n".join(f"$ {one}\n{text}" for one, text in zip(commands, said))
