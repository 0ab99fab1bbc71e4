"""Several torchrun agents on this host, with the environment that a fragment would have."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from programs import write_programs
from slurm_hooks.protocol.engines import BACKENDS
from waiting import PATIENCE_S, wait_until

SCRIPT = Path(__file__).with_name("train_tiny.py")
_DROPPED = ("SLURM_", "PET_", "MALLEABLE_", "TORCHELASTIC_")

# A Comment for each element, in a file. In another its state and run, if Slurm answers to that.
SQUEUE = """#!/bin/sh
case "$*" in *RestartCnt*) exec cat {place}/../run.${2#--job=} ;; esac
cat {place}/../comment.${2#--job=} 2>/dev/null || echo '(null)'
"""
SCONTROL = """#!/bin/sh
[ "$1" != update ] || printf %s "${3#Comment=}" > {place}/../comment.${2#JobId=}
"""


class Gang:
    """Agents by fragment number. Each agent is ended by its own pid."""

    def __init__(self, job_path: Path, work: Path) -> None:
        self.job_path = job_path
        self.work = work
        self.shared = work / "shared"
        self.launcher = ["-m", "torch.distributed.run"]
        self.flags: list[str] = []  # torchrun's own
        self.script = SCRIPT
        self.agents: dict[int, subprocess.Popen[bytes]] = {}
        self.extra: dict[str, str] = {}

    def environment(self, fragment: int, nnodes: str, restarts: int = 0) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(_DROPPED)}
        return {
            **env,
            "PET_NNODES": nnodes,
            "PET_RDZV_BACKEND": BACKENDS[-1],  # as jobs get it
            "PET_RDZV_ID": "77",
            "PET_RDZV_ENDPOINT": str(self.shared),
            "PET_LOCAL_ADDR": "127.0.0.1",
            "PET_MAX_RESTARTS": "1000",
            "MALLEABLE_JOB_ID": "77",
            "MALLEABLE_FRAGMENT": str(fragment),
            "SLURM_RESTART_COUNT": str(restarts),
            "MALLEABLE_LAST_CALL_S": "2",
            "MALLEABLE_KEEP_ALIVE_S": "3",
            "MALLEABLE_BEAT_S": "0.5",
            "MALLEABLE_SETTLE_S": "0.3",
            "PYTHONPATH": str(self.job_path),
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
            "PYTHONFAULTHANDLER": "1",
            **self.extra,
        }

    def start(
        self, fragment: int, nnodes: str, steps: int, *more: str, restarts: int = 0
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, *self.launcher, *self.flags, str(self.script)]
        if shutil.which("setpriv"):  # a run of tests that is killed leaves no training behind
            command[:0] = ["setpriv", "--pdeathsig=KILL"]
        with open(self.log_path(fragment), "ab") as log:
            agent = subprocess.Popen(
                [*command, str(self.work), str(steps), *more],
                env=self.environment(fragment, nnodes, restarts),
                cwd=self.work,  # a module in the current directory would hide the job path's
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.agents[fragment] = agent
        return agent

    def pretend_slurm(self) -> None:
        """Give agents a squeue and a scontrol, which keep the Comments of job 77 in files."""
        tools = self.work / "tools"
        tools.mkdir()
        write_programs(tools, {"squeue": SQUEUE, "scontrol": SCONTROL})
        self.extra |= {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_ARRAY_JOB_ID": "77"}

    def log_path(self, fragment: int) -> Path:
        return self.work / f"agent-{fragment}.log"

    def log(self, fragment: int) -> str:
        return self.log_path(fragment).read_text(errors="replace")

    def wait_exit(self, *fragments: int, timeout: float = PATIENCE_S) -> list[int]:
        """Return the exit codes. Fail with all logs, and with the stacks of hanging
        processes in them.
        """

        def ended() -> bool:
            return all(self.agents[f].poll() is not None for f in fragments)

        wait_until(ended, timeout, self._dump_stacks)
        return [self.agents[f].wait() for f in fragments]

    def _dump_stacks(self) -> str:
        """Dump the logs after SIGABRT to all running processes, which makes them write their stacks
        and end.
        """
        for fragment, agent in self.agents.items():
            for pid in [*self.worker_pids(fragment), agent.pid] if agent.poll() is None else []:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGABRT)  # heard by Python's faulthandler
        time.sleep(2.0)
        return f"{self.state()}\n{self.dump(20_000)}"

    def worker_pids(self, fragment: int) -> list[int]:
        return children(self.agents[fragment].pid)

    def cut_off(self, fragment: int, sig: signal.Signals) -> None:
        """End a fragment as Slurm does: every process gets the signal at once."""
        workers = self.worker_pids(fragment)
        drawing = [pid for worker in workers for pid in children(worker)]  # of DataLoaders
        for pid in [*drawing, *workers, self.agents[fragment].pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)

    def notify(self, *fragments: int) -> float:
        """Send SIGURG to all processes of the fragments. Return the time."""
        for fragment in fragments:
            for pid in [self.agents[fragment].pid, *self.worker_pids(fragment)]:
                os.kill(pid, signal.SIGURG)
        return time.time()

    def steps(self) -> list[tuple[float, int, int]]:
        path = self.work / "steps.log"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []  # no half of a line
        rows = [line.split() for line in lines]
        return [(float(t), int(s), int(w)) for t, s, w in rows]

    def begins(self) -> list[dict[str, Any]]:
        path = self.work / "begins.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def state(self) -> str:
        """The shared state of the agents, as text."""
        return newest(self.shared)

    def rounds(self) -> list[dict[str, object]]:
        path = self.shared / "rounds.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_world(self, world: int, since: float = 0.0, timeout: float = PATIENCE_S) -> float:
        """Wait for the first step with this world size after `since`. Return its time."""

        def seen() -> float:
            return next((t for t, _, w in self.steps() if w == world and t > since), 0.0)

        return wait_until(seen, timeout, self.dump)

    def dump(self, longest: int = 3000) -> str:
        return "\n".join(f"--- {f}\n{self.log(f)[-longest:]}" for f in self.agents)

    def stop(self) -> None:
        for fragment, agent in self.agents.items():
            if agent.poll() is None:
                for pid in [*self.worker_pids(fragment), agent.pid]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                agent.wait(10)


def children(pid: int) -> list[int]:
    """The processes that this process has started."""
    with contextlib.suppress(FileNotFoundError):  # it has ended
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def newest(shared: Path) -> str:
    """The text of the newest revision, or "" without a revision."""
    paths = {int(path.suffix[1:]): path for path in shared.glob("state.[0-9]*")}
    try:
        return paths[max(paths)].read_text() if paths else ""
    except FileNotFoundError:  # tidied away in between
        return newest(shared)
