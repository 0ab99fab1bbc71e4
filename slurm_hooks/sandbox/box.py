"""A throwaway real Slurm on this host: the object that demo, tests and benchmarks hold.

Orders the steps (lay out, start, wait, stop, remove) and keeps the record up to date. The modules
below know how a daemon starts, the text of its files and the processes of a sandbox.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Optional

from slurm_hooks.errors import RetryLater, UsageError
from slurm_hooks.model.moments import plural
from slurm_hooks.sandbox import accounting, base, daemons, processes
from slurm_hooks.sandbox.commands import (
    Command,
    additions,
    call_command,
    clean_environment,
    run_command,
)
from slurm_hooks.sandbox.create import create
from slurm_hooks.sandbox.record import Record, read_record, write_record
from slurm_hooks.sandbox.spec import SandboxSpec

Progress = Callable[[str, int, int], None]  # the step, how many are done, of how many
NODES_AT_ONCE = 64  # slurmd started before waiting for them: more would starve each other
USABLE = ("idle", "mixed", "allocated", "completing", "reserved", "planned")


class Sandbox:
    """A running sandbox. Use `Sandbox.up`, best as a context manager, or `Sandbox.attach`."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._is_gone = False

    @classmethod
    def up(cls, spec: Optional[SandboxSpec] = None, progress: Optional[Progress] = None) -> Sandbox:
        """Starts a sandbox and returns when every node is idle.

        Raises MissingProgram, with the packages to install, if Slurm is not installed. Raises
        RetryLater, with the log's end, if it does not come up. Then it ends all that it started.
        """
        spec = spec or SandboxSpec()
        box = cls(create(spec))
        try:
            box._start(progress or _silent)
        except BaseException:
            box.down()
            raise
        return box

    @classmethod
    def attach(cls, directory: Path) -> Sandbox:
        """Returns the sandbox in `directory`, from any process. Raises UsageError without any."""
        return cls(read_record(directory.resolve()))

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.down()

    @property
    def record(self) -> Record:
        return self._record

    @property
    def dir(self) -> Path:
        return self._record.layout.dir

    @property
    def name(self) -> str:
        return self._record.layout.name

    @property
    def work(self) -> Path:
        """A directory for jobs' scripts and output. If we are root, every user may write to it."""
        return self._record.layout.work

    @property
    def settings(self) -> Path:
        return self._record.layout.settings

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(f"n{index}" for index in range(1, self._record.nodes + 1))

    def running(self) -> tuple[str, ...]:
        """The daemons that live: munged, slurmctld and names of nodes."""
        return tuple(name for name in self._record.daemons if self._is_running(name))

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make any Slurm command, and `malleable`, use this sandbox."""
        return self._additions(os.environ.get("PATH", os.defpath))

    def _additions(self, path: str) -> dict[str, str]:
        return additions(self._record.slurm, self._record.layout, path)

    def run(
        self,
        argv: Sequence[str],
        user: Optional[str] = None,
        cwd: Optional[Path] = None,
        env: Optional[Mapping[str, str]] = None,
        check: bool = True,
        timeout_s: float = 30.0,
        stdin: Optional[str] = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command inside: its Slurm, its root, by default in `work`.

        `user` needs root rights. `env` adds to the environment. Raises CommandRefused with the
        output if it fails (unless `check` is false), RetryLater after `timeout_s` seconds.
        """
        command = self._command(argv, user, cwd or self.work, env or {})
        command = replace(command, timeout_s=timeout_s, stdin=stdin)
        return run_command(command, self._record.slurm, check)

    def call(self, argv: Sequence[str], user: Optional[str] = None) -> int:
        """Runs a command inside, in the caller's directory and on the caller's terminal.

        Returns its exit code. There is no time-out.
        """
        return call_command(self._command(argv, user, Path.cwd(), {}), self._record.slurm)

    def _command(
        self, argv: Sequence[str], user: Optional[str], cwd: Path, env: Mapping[str, str]
    ) -> Command:
        kept = clean_environment(os.environ, user)
        added = self._additions(kept.get("PATH", self._record.slurm.path))
        return Command(tuple(map(str, argv)), cwd, {**kept, **added, **env}, user)

    def log(self, name: str) -> str:
        """Returns the whole log of munged, slurmctld or a node. Empty if there is no log."""
        path = self._record.layout.logs / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_ready(self, nodes: Optional[Sequence[str]] = None, limit_s: float = 60.0) -> None:
        """Waits until slurmctld answers and these nodes (default: all) can run jobs.

        Raises RetryLater with the states seen and the end of a log.
        """
        wanted, states = set(nodes or self.nodes), dict[str, str]()
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            self._raise_if_ended(wanted)
            states = self._states()
            late = sorted(node for node in wanted if states.get(node, "?") not in USABLE)
            if not late:
                return
            time.sleep(0.1)
        raise RetryLater(self._not_ready(late, states, limit_s))

    def _states(self) -> dict[str, str]:
        """Returns node -> state. A star (no answer from slurmd) makes the node not usable."""
        answer = self.run(
            ["sinfo", "-h", "-N", "-p", "main", "-o", "%N %T"], check=False, timeout_s=20
        )
        lines = (line.split() for line in answer.stdout.splitlines())
        # "allocated+": a job is completing there. "idle-": backfill has planned a job there.
        return {words[0]: words[1].rstrip("+-") for words in lines if len(words) == 2}

    def _raise_if_ended(self, nodes: set[str]) -> None:
        for name, process in self._record.daemons.items():
            is_wanted = name in nodes or name in (daemons.MUNGED, daemons.CONTROLLER)
            if is_wanted and not processes.is_alive(process):
                tail = daemons.log_tail(self._record.layout, name)
                raise RetryLater(f"{name} of sandbox {self.name} has ended:\n{tail}")

    def _not_ready(self, late: Sequence[str], states: Mapping[str, str], limit_s: float) -> str:
        seen = ", ".join(f"{node} {states.get(node, 'unknown')}" for node in late[:5])
        tail = daemons.log_tail(self._record.layout, late[0])
        return (
            f"{plural(len(late), 'node')} of sandbox {self.name} not usable after "
            f"{limit_s:.0f} s: {seen}. "
            f"The end of {late[0]}'s log:\n{tail}"
        )

    def start_controller(self) -> None:
        """Starts slurmctld unless it runs. Returns when it answers."""
        if not self._is_running(daemons.CONTROLLER):
            started = daemons.start_controller(self._record.slurm, self._record.layout)
            self._remember({daemons.CONTROLLER: started})
        self.run(["squeue", "-h"])

    def kill_controller(self) -> None:
        """Sends SIGKILL, as in a crash. Jobs continue."""
        self._stop(daemons.CONTROLLER, grace_s=0)

    def restart_controller(self) -> None:
        """Stops slurmctld in order, so that it saves its state, and starts it."""
        self._stop(daemons.CONTROLLER, grace_s=30)
        self.start_controller()

    def stop_node(self, node: str) -> None:
        """Ends a node's slurmd. Its jobs' processes continue, as in an upgrade of slurmd."""
        self._known(node)
        self._stop(node, grace_s=10)

    def start_node(self, node: str) -> None:
        """Starts a node's slurmd unless it runs. Returns when the node can run jobs."""
        self._known(node)
        if not self._is_running(node):
            started = daemons.start_node(self._record.slurm, self._record.layout, node)
            self._remember({node: started})
        self.wait_ready([node])

    def down(self) -> None:
        """Ends every process of the sandbox, jobs included, and removes its files. Idempotent.

        Raises RetryLater if a process cannot be ended. Then the files are kept for another try.
        """
        if not self._is_gone and self._is_there():
            self._end_processes()
            base.remove(self.dir)
        self._is_gone = True

    def _is_there(self) -> bool:
        """False once it has ended, even if another sandbox has its name since."""
        try:
            return read_record(self.dir).layout == self._record.layout
        except UsageError:
            return self.dir.exists()

    def _end_processes(self) -> None:
        # The controller first and at once: it would requeue and start jobs while we end them.
        layout, recorded = self._record.layout, dict(self._record.daemons)
        controller = recorded.pop(daemons.CONTROLLER, None)
        family = set(processes.find_processes(layout.dir, layout.conf))
        processes.stop([controller] if controller else [], grace_s=0)
        left = family | {process for process in recorded.values() if processes.is_alive(process)}
        for grace_s in (1.0, 0.2, 0.2, 0.2, 0.0):
            if not left:
                return
            processes.stop(left, grace_s=grace_s)
            left = set(processes.find_processes(layout.dir, layout.conf))
            left |= {process for process in family if processes.is_alive(process)}
        if left:
            numbers = ", ".join(str(process.pid) for process in sorted(left))
            raise RetryLater(f"Processes of sandbox {self.name} did not end: {numbers}.")

    def _start(self, progress: Progress) -> None:
        slurm, layout = self._record.slurm, self._record.layout
        progress("munged", 0, self._record.nodes)
        self._remember({daemons.MUNGED: daemons.start_munged(slurm, layout)})
        if layout.accounting_port is not None:
            progress("accounting", 0, self._record.nodes)
            self._remember(accounting.start(slurm, layout))
            accounting.fill(self.run, layout)
        progress("slurmctld", 0, self._record.nodes)
        self._remember({daemons.CONTROLLER: daemons.start_controller(slurm, layout)})
        for first in range(0, self._record.nodes, NODES_AT_ONCE):
            batch = self.nodes[first : first + NODES_AT_ONCE]
            progress("slurmd", first, self._record.nodes)
            self._remember({node: daemons.start_node(slurm, layout, node) for node in batch})
            self.wait_ready(batch, limit_s=30 + self._record.nodes / 4)
        progress("ready", self._record.nodes, self._record.nodes)

    def _known(self, node: str) -> None:
        if node not in self.nodes:
            raise UsageError(
                f"Sandbox {self.name} has no node {node!r}, only n1-n{len(self.nodes)}"
            )

    def _is_running(self, daemon: str) -> bool:
        process = self._record.daemons.get(daemon)
        return process is not None and processes.is_alive(process)

    def _stop(self, daemon: str, grace_s: float) -> None:
        process = self._record.daemons.get(daemon)
        if process is not None and processes.stop([process], grace_s):
            raise RetryLater(f"{daemon} (process {process.pid}) did not end.")
        self._record = self._record.without(daemon)
        write_record(self._record)

    def _remember(self, started: dict[str, processes.Process]) -> None:
        self._record = self._record.with_daemons(started)
        write_record(self._record)


def list_sandboxes(directory: Optional[Path] = None) -> list[Sandbox]:
    """Returns the sandboxes below a base directory (default: this user's), running or not. Others
    may remove theirs meanwhile.
    """
    boxes = []
    for path in base.sandbox_directories(directory or base.default_base()):
        try:
            boxes.append(Sandbox.attach(path))
        except UsageError:
            if path.exists():
                raise
    return boxes


def _silent(_step: str, _done: int, _total: int) -> None:
    return None
