"""The fragments of a job on a sandbox: released, given notice, killed, put back to held.

A malleable job is treated as the tick treats it. The same actions pass the same gateway, and the
tick's own lifecycle decides about ended fragments. A plain array of held elements gets Slurm's own
means. This module knows neither engines nor the programs of fragments.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from parts.live_slurm import port

from slurm_hooks.model import (
    ENDED_STATES,
    Fragment,
    FragmentState,
    Intent,
    MalleableJob,
    Snapshot,
    Verb,
    Why,
)
from slurm_hooks.planning.check import Half
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.leases import notice
from slurm_hooks.planning.lifecycle import upkeep
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.settings.file import load
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.slurm.jobs import fragment_state
from slurm_hooks.slurm.writing import apply

PARTITION = "malleable"
LEASE = timedelta(minutes=120)  # longer than any course: no lease plays a part
BACK_S = 90.0
KILL_S = 10.0


class FleetError(Exception):
    """The sandbox did not carry out the request."""


class Fleet:
    """A plain array of held elements. Fragment i always gets node n(i+1)."""

    def __init__(self, box: Sandbox, script: Path, request: str, count: int) -> None:
        self.box = box
        limit = f"--time={int(LEASE.total_seconds()) // 60}"
        log = "--output=fragment-%a.log"
        words = ["sbatch", "--parsable", *self.options(request, count), limit, log, str(script)]
        self.job_id = int(box.run(words, cwd=script.parent).stdout)

    def options(self, request: str, count: int) -> list[str]:
        """The options of sbatch."""
        return [f"--partition={PARTITION}", "--hold", "--requeue", f"--array=0-{count - 1}"]

    def states(self) -> dict[int, FragmentState]:
        """Every fragment's state as Slurm prints it, in a single command."""
        fields = "-OArrayTaskID:|,State:|,PriorityLong:|"
        words = ["squeue", "-h", "--array", "--states=all", f"--jobs={self.job_id}", fields]
        rows = (line.split("|") for line in self.box.run(words).stdout.splitlines())
        return {int(f): fragment_state(state.strip(), p.strip()) for f, state, p, *_ in rows}

    def seen(self) -> str:
        """The fragments and their nodes as Slurm shows them, for people."""
        fields = "-OJobArrayID:12,State:12,Reason:28,StartTime:21,PriorityLong:12,NodeList"
        jobs = self.box.run(["squeue", "--array", "--states=all", fields], check=False).stdout
        return jobs + self.box.run(["sinfo", "--Node", "--long"], check=False).stdout

    def release(self, fragments: Iterable[int]) -> None:
        """Start these fragments, each on its node."""
        lines = []
        for fragment in fragments:
            where = f"ReqNodeList={node(fragment)} NumNodes=1 StartTime=now"
            lines.append(f"update jobid={self.job_id}_{fragment} {where}\n")
            lines.append(f"release {self.job_id}_{fragment}\n")
        self.box.run(["scontrol"], stdin="".join(lines))

    def dismiss(self, fragments: Iterable[int]) -> None:
        """Requeue these fragments: SIGTERM to all their processes, SIGKILL after KillWait."""
        names = [f"{self.job_id}_{fragment}" for fragment in fragments]
        lines = [f"requeue {name}\nuhold {name}\n" for name in names]
        self.box.run(["scontrol"], stdin="".join(lines))

    def kill(self, fragments: Sequence[int]) -> None:
        """Kill all processes of these fragments at once, as when their nodes fail. Raise
        FleetError.
        """
        deadline = time.monotonic() + KILL_S
        while pids := [pid for f in fragments for pid in self._processes(f)]:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise FleetError(f"processes {pids} survive SIGKILL")

    def preempt(self, fragments: Sequence[int]) -> None:
        """Submit a short ordinary job that needs the nodes of these fragments."""
        nodes = ",".join(map(node, fragments))
        words = ["sbatch", "--partition=main", "--exclusive", f"--nodes={len(fragments)}"]
        words += [f"--nodelist={nodes}", "--time=1", "--output=/dev/null", "--wrap=exec sleep 1"]
        self.box.run(words)

    def _processes(self, fragment: int) -> list[int]:
        job, conf = self.job_id, self.box.environment["SLURM_CONF"]
        words = (f"SLURM_ARRAY_JOB_ID={job}", f"SLURM_ARRAY_TASK_ID={fragment}")
        return find_processes([*words, f"SLURM_CONF={conf}"])

    def tend(self) -> None:
        """Put ended fragments back to held."""
        self.dismiss([f for f, state in self.states().items() if state in ENDED_STATES])

    def put_back(self, fragments: Sequence[int]) -> None:
        """Tend until these fragments are held again. Raise FleetError."""
        deadline = time.monotonic() + BACK_S
        while any(self.states()[f] is not FragmentState.HELD for f in fragments):
            if time.monotonic() > deadline:
                seen = {f: self.states()[f].value for f in fragments}
                raise FleetError(f"not held again after {BACK_S:.0f} s: {seen}")
            self.tend()
            time.sleep(1.0)


class MalleableFleet(Fleet):
    """A malleable job."""

    def options(self, request: str, count: int) -> list[str]:
        """See Fleet. The request decides the number of elements."""
        return [f"--malleable={request}"]

    def release(self, fragments: Iterable[int]) -> None:
        """Act as a tick for which their nodes are free."""
        seen = self._observe()
        self._apply(seen, [_grow(f, seen) for f in self._chosen(seen, fragments)])

    def dismiss(self, fragments: Iterable[int]) -> None:
        """Act as a tick that wants their nodes for others: marks and SIGURG."""
        seen = self._observe()
        chosen = self._chosen(seen, fragments)
        self._apply(seen, [notice(f.id, f.mark, Why.BETTER_USE, seen.now) for f in chosen])

    def tend(self) -> None:
        """Act as a tick that changes no size."""
        seen = self._observe()
        settings = load(self.box.settings)
        actions = upkeep(Ground(seen, settings), self._job(seen)).actions
        for half in (Half.FIRST.of(actions), Half.SECOND.of(actions)):
            apply(port(self.box), seen, half, lambda _: None)  # a refused line is repeated

    def _chosen(self, seen: Snapshot, fragments: Iterable[int]) -> list[Fragment]:
        return [self._job(seen).fragments[fragment] for fragment in fragments]

    def _job(self, seen: Snapshot) -> MalleableJob:
        return next(job for job in seen.jobs if job.job_id == self.job_id)

    def _observe(self) -> Snapshot:
        return observe(port(self.box), [PARTITION])

    def _apply(self, seen: Snapshot, actions: Sequence[Intent]) -> None:
        for half in (Half.FIRST.of(actions), Half.SECOND.of(actions)):
            if refused := apply(port(self.box), seen, half, lambda _: None):
                raise FleetError("; ".join(refused))


def node(fragment: int) -> str:
    """The node on which a fragment runs."""
    return f"n{fragment + 1}"


def _grow(fragment: Fragment, seen: Snapshot) -> Intent:
    mark = replace(fragment.mark, released=seen.now, noticed=None)
    nodes = frozenset({node(fragment.id.index)})
    return Intent(fragment.id, Why.HOLE_OPEN, Verb.GROW, mark=mark, nodes=nodes, limit=LEASE)


def find_processes(variables: Sequence[str]) -> list[int]:
    """Processes that were started with all these variables, each `NAME=value`."""
    wanted = {variable.encode() for variable in variables}
    numbers = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return [pid for pid in numbers if wanted <= _environment(pid)]


def _environment(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:  # gone by now, or another user's
        return set()
